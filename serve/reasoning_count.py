"""Counts the thinking of models whose replies begin in the middle of it."""

from collections.abc import Sequence

from vllm.reasoning import ReasoningParserManager
from vllm.reasoning.deepseek_r1_reasoning_parser import DeepSeekR1ReasoningParser

NAME = "deepseek_r1"


class CountingParser(DeepSeekR1ReasoningParser):
    """vLLM takes text up to the end mark for thinking whether the reply has the start mark or not, but counts only what
    follows a start mark: 0 where the prompt brings it. This one counts what it parts."""

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        ids = list(token_ids)
        before = ids[: ids.index(self.end_token_id)] if self.end_token_id in ids else ids
        return sum(token != self.start_token_id for token in before)


def count_unopened_thinking() -> None:
    """Makes it the parser of that name in this process."""
    ReasoningParserManager.register_module(NAME, module=CountingParser)
