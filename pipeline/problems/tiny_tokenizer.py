"""The tiny world's tokenizer: words, whole numbers and signs.

Numbers from -99 to 99 and the labels a to e are single tokens without spaces around them, the same wherever they stand,
so that a small model can copy them; the spaces belong to the operators. Text and tokens map one to one (no clean-up,
no normalisation), which keeps offsets exact.
"""

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pipeline.problems.tiny import LABELS

SPECIAL = ["<pad>", "<eos>", "<unk>", "<|user|>", "<|assistant|>"]
THINK = ["<think>", "</think>"]
WORDS = (
    "Wait But Alternatively Hmm Let Therefore So The Which Is What the answer is let me check that again right "
    "it two add up to more or yes no from start"
).split()
OPERATORS = "+-=*/"
SIGNS = [*"?.,:{}()", *OPERATORS, "\\boxed", *LABELS]
LABEL = r"[a-e](?![A-Za-z])"
PIECES = rf" ?[+\-=*/] | vs | ?\\boxed|-?\d{{1,2}}|(?<![A-Za-z]){LABEL}| ?(?!{LABEL})[A-Za-z]+|\n|[^\sA-Za-z\d]| "
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + '<eos>' }}"
    "{% else %}{{ '<|user|>' + message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}"
)


def _vocabulary() -> list[str]:
    words = [*WORDS, *(" " + word for word in WORDS)]
    operators = [form for sign in OPERATORS for form in (f"{sign} ", f" {sign} ")]
    numbers = [str(n) for n in range(-99, 100)]
    return [*SPECIAL, *THINK, "\n", " ", " vs ", " \\boxed", *SIGNS, *operators, *words, *numbers]


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
