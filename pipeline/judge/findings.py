"""How well a judge agrees with a labeller: rates, a threshold sweep, calibration. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pipeline.judge.base import Unjudged

THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
BINS = 10

Answer = float | Unjudged


@dataclass(frozen=True)
class Agreement:
    """Verdicts of a judge against labels, over `n` segments. What could not be judged counts as no, as in a run."""

    n: int
    labelled_yes: int
    agreed: int
    false_yes: int
    missed_yes: int
    unjudged: int

    @property
    def agreement(self) -> float | None:
        """Share of segments with the labeller's verdict; None without segments."""
        return self.agreed / self.n if self.n else None

    @property
    def false_yes_rate(self) -> float | None:
        """Judged right, of those labelled no; None where none is."""
        no = self.n - self.labelled_yes
        return self.false_yes / no if no else None

    @property
    def missed_yes_rate(self) -> float | None:
        """Judged wrong, of those labelled yes; None where none is."""
        return self.missed_yes / self.labelled_yes if self.labelled_yes else None

    def to_dict(self) -> dict[str, int | float | None]:
        """Counts and rates, JSON-ready."""
        rates = {name: getattr(self, name) for name in ("agreement", "false_yes_rate", "missed_yes_rate")}
        return {**asdict(self), **rates}


def is_yes(answer: Answer, threshold: float) -> bool:
    """The verdict: NaN and whatever was not judged are no."""
    return not isinstance(answer, Unjudged) and answer >= threshold


def agreement(labels: Sequence[bool], answers: Sequence[Answer], threshold: float) -> Agreement:
    """Of one set of segments."""
    verdicts = [is_yes(answer, threshold) for answer in answers]
    pairs = list(zip(labels, verdicts, strict=True))
    return Agreement(
        n=len(pairs),
        labelled_yes=sum(labels),
        agreed=sum(label == verdict for label, verdict in pairs),
        false_yes=sum(verdict and not label for label, verdict in pairs),
        missed_yes=sum(label and not verdict for label, verdict in pairs),
        unjudged=sum(isinstance(answer, Unjudged) or answer != answer for answer in answers),
    )


def sweep(labels: Sequence[bool], answers: Sequence[Answer]) -> list[dict[str, float | None]]:
    """A row for each threshold: agreement, false-yes and missed-yes rate."""
    rows = []
    for threshold in THRESHOLDS:
        found = agreement(labels, answers, threshold)
        rates = {"false_yes_rate": found.false_yes_rate, "missed_yes_rate": found.missed_yes_rate}
        rows.append({"threshold": threshold, "agreement": found.agreement, **rates})
    return rows


def calibration(labels: Sequence[bool], answers: Sequence[Answer]) -> list[dict[str, float]]:
    """Ten equal bins of the probability of yes, empty ones left out: its mean there, the share labelled yes, and n."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for label, answer in zip(labels, answers, strict=True):
        if not isinstance(answer, Unjudged) and answer == answer:
            bins[min(int(answer * BINS), BINS - 1)].append((answer, label))
    return [
        {
            "said": sum(answer for answer, _ in held) / len(held),
            "found": sum(label for _, label in held) / len(held),
            "segments": float(len(held)),
        }
        for held in bins
        if held
    ]


def first_yes(verdicts: Sequence[bool]) -> int | None:
    """Which segment ends the prefix; None where none is right."""
    return list(verdicts).index(True) if True in verdicts else None
