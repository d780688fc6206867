"""A question to a language model that judges, as token ids; its answer is the next token: yes or no.

Problem and reference answer come before the segment, so that all segments of a trace share a prefix that an engine with
prefix caching computes once. The judge's own chat template writes the prompt. It gets one user message with the fields
`problem`, `gold` and `segment`, and with `content`, the same as an instruction in words: a general model's template
reads `content`, a judge's may put the fields into a shorter form of its own.
"""

import re
from collections.abc import Sequence
from typing import Any

from pipeline.config import UserError
from pipeline.judge.base import JudgeItem

YES, NO = "yes", "no"
INSTRUCTION = """\
Problem:
{problem}

Reference answer:
{gold}

Part of somebody's reasoning about this problem:
{segment}

Does this part by itself state a final answer, and is that answer equal to the reference answer? A guess, a question, an
intermediate result or a quotation from the problem is no final answer. Reply with one word: yes or no."""


class JudgePrompt:
    """Prompts for one judge's tokenizer. `choices` are the ids of (no, yes)."""

    def __init__(self, tokenizer: Any, where: str = "the judge") -> None:
        """UserError where the tokenizer has no chat template, or writes yes or no in more than one token."""
        if not tokenizer.chat_template:
            raise UserError(f"{where} has no chat template to write its prompt; add chat_template.jinja to the folder")
        self.tokenizer = tokenizer
        self.choices = (_one_token(tokenizer, NO, where), _one_token(tokenizer, YES, where))
        marks = sorted(map(re.escape, tokenizer.get_added_vocab()), key=len, reverse=True)
        self._marks = re.compile("|".join(marks)) if marks else None

    def ids(self, items: Sequence[JudgeItem]) -> list[list[int]]:
        """Prompt ids [P] of each item. Text that would read as one of the tokenizer's marks is taken out first, so that
        a segment cannot end its own question."""
        if not items:
            return []
        texts = [self._text(item) for item in items]
        return self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]

    def _text(self, item: JudgeItem) -> str:
        parts = {"problem": item.problem, "gold": item.gold, "segment": item.segment_text}
        fields = {name: self._marks.sub("", text) if self._marks else text for name, text in parts.items()}
        message = {"role": "user", "content": INSTRUCTION.format(**fields), **fields}
        return self.tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)


def _one_token(tokenizer: Any, word: str, where: str) -> int:
    ids = tokenizer.encode(word, add_special_tokens=False)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise UserError(f"{where} writes '{word}' in {len(ids)} tokens; a judge needs one token each for yes and no")
    return int(ids[0])
