"""How likely the draft token at each position is accepted: counts that fade, and forget when the text has changed."""

from collections.abc import Sequence

from serve.speculation.state import examined

CHANGED = 3.0  # standard errors between the last few steps and the long memory that count as a change
ENOUGH = 3.0  # examined tokens before a change may be called
LOWEST, HIGHEST = 0.05, 0.95  # bounds of the rate inside the standard error, which is 0 at rates 0 and 1
CARRIED = 0.5  # of the fast memory when it takes over: part of it is still from before the change
SHRINK = 2.0  # draft tokens' worth of belief that a position is like the one before it


class AcceptanceEstimate:
    """Acceptance by draft position, given that all earlier positions were accepted.

    Two memories of (accepted, examined) counts: a slow one that is used, and a fast one. When the fast one
    contradicts the slow one, the slow one is replaced by it. Half-lives count observed steps.
    """

    def __init__(self, k_max: int, half_life: float = 100.0, recent: float = 6.0, first: float = 0.6) -> None:
        self.k_max, self.first = k_max, first
        self.keep, self.keep_recent = 0.5 ** (1.0 / half_life), 0.5 ** (1.0 / recent)
        self.hits, self.tries = [0.0] * k_max, [0.0] * k_max
        self.new_hits, self.new_tries = [0.0] * k_max, [0.0] * k_max
        self.changes = 0

    def fade(self) -> None:
        """Forget a little, as an observed step does."""
        for counts in (self.hits, self.tries):
            counts[:] = [self.keep * value for value in counts]

    def update(self, asked: Sequence[int], emitted: Sequence[int]) -> None:
        """Count a verified step: tokens asked for and emitted, by request. Steps without drafts teach nothing."""
        if not any(asked):
            return
        self.fade()
        for counts in (self.new_hits, self.new_tries):
            counts[:] = [self.keep_recent * value for value in counts]
        for want, got in zip(asked, emitted, strict=True):
            accepted, tried = examined(want, got)
            for position in range(tried):
                hit = position < accepted
                self.tries[position] += 1
                self.new_tries[position] += 1
                self.hits[position] += hit
                self.new_hits[position] += hit
        if self._changed():
            self.hits = [CARRIED * value for value in self.new_hits]
            self.tries = [CARRIED * value for value in self.new_tries]
            self.changes += 1

    def _changed(self) -> bool:
        """True when some position's recent rate is `CHANGED` standard errors from what is remembered without it."""
        for hits, tries, new_hits, new_tries in zip(self.hits, self.tries, self.new_hits, self.new_tries, strict=True):
            old_tries = tries - new_tries
            if new_tries < ENOUGH or old_tries < ENOUGH:
                continue
            recent, before = new_hits / new_tries, max(0.0, hits - new_hits) / old_tries
            bounded = min(HIGHEST, max(LOWEST, before))
            if (recent - before) ** 2 > CHANGED**2 * bounded * (1 - bounded) * (1 / new_tries + 1 / old_tries):
                return True
        return False

    def rates(self) -> list[float]:
        """Estimated acceptance [k_max] by position; where little was examined, drawn to the position before."""
        rates, before = [], self.first
        for hits, tries in zip(self.hits, self.tries, strict=True):
            before = (hits + SHRINK * before) / (tries + SHRINK)
            rates.append(before)
        return rates

    def state_dict(self) -> dict[str, object]:
        names = ("hits", "tries", "new_hits", "new_tries")
        return {name: list(getattr(self, name)) for name in names} | {"changes": self.changes}

    def load_state_dict(self, saved: dict) -> None:
        for name in ("hits", "tries", "new_hits", "new_tries"):
            setattr(self, name, [float(value) for value in saved[name]])
        self.changes = int(saved["changes"])


def expected_tokens(rates: Sequence[float]) -> list[float]:
    """Tokens a sequence emits in expectation for draft lengths 0 ... len(rates): 1 + r1 + r1 r2 + ..."""
    totals, reached = [1.0], 1.0
    for rate in rates:
        reached *= rate
        totals.append(totals[-1] + reached)
    return totals
