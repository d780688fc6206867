"""Where the thinking of a local engine's replies begins and ends, in text and in tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.traces.marks import Marks
from pipeline.traces.thinking import PROMPT_TAIL, closes_thinking, split_thinking
from serve.inference.parting import Parting

UNOPENED = ("deepseek_r1",)  # parsers for which a reply begins with thinking, start mark or not


@dataclass(frozen=True)
class ThinkingMarks:
    """The marks of one engine; `end` is empty where it knows none. `unopened`: replies think from the beginning."""

    start: str
    end: str
    unopened: bool
    tokenizer: Any

    @classmethod
    def of(cls, config: Any, tokenizer: Any) -> "ThinkingMarks":
        """Those of a started engine's `VllmConfig`: the parser's own, else the ones that were set."""
        name = config.structured_outputs_config.reasoning_parser
        if not name:
            asked = config.reasoning_config
            start, end = (asked.reasoning_start_str, asked.reasoning_end_str) if asked else ("", "")
            return cls(start, end, False, tokenizer)
        from vllm.reasoning import ReasoningParserManager

        parser = ReasoningParserManager.get_reasoning_parser(name)(tokenizer)
        start, end = parser.reasoning_start_str or "", parser.reasoning_end_str or ""
        return cls(start, end, name in UNOPENED, tokenizer)

    def thinks(self, prompt: Sequence[int]) -> bool:
        """Whether the reply to a prompt [P] begins with thinking."""
        if not self.end or closes_thinking(prompt, self._tags):
            return False
        tail = self.tokenizer.decode(list(prompt[-PROMPT_TAIL:]), skip_special_tokens=False)
        return self.unopened or tail.rstrip().endswith(self.start)

    def parting(self, prompt: Sequence[int]) -> Parting:
        """What parts the reply to a prompt [P]."""
        return Parting(self.start, self.end, thinking=self.thinks(prompt))

    def reasoning_tokens(self, prompt: Sequence[int], token_ids: Sequence[int]) -> int:
        """How many tokens of a reply [T] come before the end of its thinking; 0 for one that does not think."""
        if not self.end:
            return 0
        opened = self.start in self.tokenizer.decode(list(token_ids), skip_special_tokens=False)
        return split_thinking(token_ids, self._tags).think_length if opened or self.thinks(prompt) else 0

    @property
    def _tags(self) -> Marks:
        ids = self.tokenizer.encode(self.end, add_special_tokens=False)
        single = ids[0] if len(ids) == 1 else None
        return Marks(think_end_id=single, think_end=self.end, by_text=single is None, tokenizer=self.tokenizer)
