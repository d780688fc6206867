"""The small judge's tokenizer and the form of its prompt.

Tokens are the words of the tiny world, operators, and single characters for everything else; numbers are written digit
by digit. The prompt marks each place in the segment where the reference answer's text stands. Finding equal strings is
no work for a model of this size (without the marks it takes many times as long to learn anything); whether such a place
is a stated answer, the whole of it and the last one, is for the model to say. So it knows no answer that is equal but
written otherwise (0.5 for 1/2).
"""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pipeline.judge.prompt import NO, YES
from pipeline.problems.tiny_tokenizer import OPERATORS, WORDS

SPECIAL = ["<pad>", "<eos>", "<unk>"]
FIELDS = ["<|gold|>", "<|segment|>", "<|same|>", "<|verdict|>"]
MORE_WORDS = "Answer If Maybe Perhaps Could Is be could if maybe not perhaps think".split()
CHARACTERS = ["\n", *map(chr, range(32, 127))]
CHAT_TEMPLATE = (
    "{% for message in messages %}{% set gold, segment = message['gold'], message['segment'] %}"
    "{{ message['problem'] + '<|gold|>' + gold + '<|segment|>' }}"
    "{{ (segment.replace(gold, '<|same|>' + gold + '<|same|>') if gold else segment) + '<|verdict|>' }}"
    "{% endfor %}"
)


def small_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer with its chat template; characters beyond ASCII are all the same unknown one."""
    words = sorted({*WORDS, *MORE_WORDS, YES, NO}, key=lambda word: (-len(word), word))
    operators = [f" {sign} " for sign in OPERATORS]
    spaced = [lead + word for word in (*words, "\\boxed") for lead in ("", " ")]
    known = dict.fromkeys([*SPECIAL, *FIELDS, *CHARACTERS, *operators, " vs ", *spaced])
    pieces = rf" (?:[+\-=*/]|vs) | ?\\boxed| ?(?:{'|'.join(words)})(?![A-Za-z])|\n|."
    core = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(known)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(pieces), behavior="isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in (*SPECIAL, *FIELDS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
