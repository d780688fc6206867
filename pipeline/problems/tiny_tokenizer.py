"""The tiny world's tokenizer: one token a word, number or sign, each with and without a leading space.

Numbers from -99 to 99 are single tokens, so that arithmetic needs no carrying inside a number. Text and tokens map
one to one (no clean-up, no normalisation), which keeps offsets exact.
"""

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<pad>", "<eos>", "<unk>", "<|user|>", "<|assistant|>"]
THINK = ["<think>", "</think>"]
WORDS = (
    "Wait But Alternatively Hmm Let Therefore So The Which Is Again the answer is let me check that again right it "
    "differs try two add up to more or not yes no from start a b c d e"
).split()
SIGNS = [*"+-=?.,:{}()*/", "\\boxed", "\n", " "]
PIECES = r" ?\\boxed| ?[A-Za-z]+| ?-?\d{1,2}|\n| ?[^\sA-Za-z\d]| "
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + '<eos>' }}"
    "{% else %}{{ '<|user|>' + message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}"
)


def _vocabulary() -> list[str]:
    plain = [*WORDS, *[s for s in SIGNS if s.strip()], *(str(n) for n in range(-99, 100))]
    return [*SPECIAL, *THINK, "\n", " ", *plain, *(" " + piece for piece in plain)]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer with its chat template, which opens `<think>` for the model."""
    core = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(_vocabulary())}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    core.add_tokens([AddedToken(token, normalized=False, special=False) for token in THINK])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )


def save_tokenizer(folder: Path) -> None:
    """Writes the tokenizer and chat template in Hugging Face's layout."""
    build_tokenizer().save_pretrained(folder)
