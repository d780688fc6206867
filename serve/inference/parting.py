"""Parts the thinking from the answer in a text that comes in pieces. Pure."""

from collections.abc import Iterator

from serve.inference.result import Phase


class Parting:
    """Fed with text as it comes; gives it back by phase, without the marks and whatever the cuts between pieces.

    `thinking`: whether the reply begins with thinking, because the prompt or the model leaves the start mark out. A
    piece that may be the beginning of a mark is held back until the next, or until `rest`. After the end mark all is
    answer. Without marks (`end` empty) everything is answer.
    """

    def __init__(self, start: str, end: str, *, thinking: bool) -> None:
        self._start, self._end = start, end
        self._phase: Phase = "reasoning" if thinking and end else "answer"
        self._is_over = not end
        self._held = ""

    def feed(self, text: str) -> Iterator[tuple[Phase, str]]:
        """What is certain by now, in order; never empty texts."""
        self._held += text
        while not self._is_over:
            at, mark = self._first_mark()
            if at is None:
                yield from self._give(len(self._held) - self._doubtful())
                return
            yield from self._give(at)
            self._held = self._held[len(mark) :]
            self._is_over = mark == self._end
            self._phase = "answer" if self._is_over else "reasoning"
        yield from self._give(len(self._held))

    def rest(self) -> Iterator[tuple[Phase, str]]:
        """What was held back, at the end of the text."""
        yield from self._give(len(self._held))

    @property
    def _marks(self) -> list[str]:
        return [mark for mark in (self._start, self._end) if mark]

    def _first_mark(self) -> tuple[int | None, str]:
        found = [(at, mark) for mark in self._marks if (at := self._held.find(mark)) >= 0]
        return min(found, default=(None, ""))

    def _doubtful(self) -> int:
        """Length of the longest end of what is held that a mark begins with."""
        ends = (
            size for mark in self._marks for size in range(len(mark) - 1, 0, -1) if self._held.endswith(mark[:size])
        )
        return max(ends, default=0)

    def _give(self, size: int) -> Iterator[tuple[Phase, str]]:
        given, self._held = self._held[:size], self._held[size:]
        if given:
            yield self._phase, given
