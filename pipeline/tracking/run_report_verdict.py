"""What changed and was it worth it: one sentence, and the figures behind it with their intervals. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.tracking.html_page import esc
from pipeline.tracking.run_report_data import NOT_MEASURED, BeforeAfter, Estimate, Figure, FigureName

LABELS = {
    FigureName.ACCURACY: "Accuracy",
    FigureName.TOKENS: "Tokens a reply",
    FigureName.TOKENS_PER_CORRECT: "Tokens per right answer",
    FigureName.NRP_SHARE: "Necessary share of the thinking",
}
_SHARES = (FigureName.ACCURACY, FigureName.NRP_SHARE)
# (tokens moved, accuracy moved) -> judgement; moved: the interval of the change leaves out 0
_JUDGEMENT = {
    (-1, 1): "Worth it, shorter and more accurate",
    (-1, 0): "Worth it, shorter and not measurably less accurate",
    (-1, -1): "A trade-off, shorter but less accurate",
    (0, 1): "More accurate, but not shorter",
    (0, 0): "No measurable change",
    (0, -1): "Not worth it, less accurate and not shorter",
    (1, 1): "More accurate, but longer",
    (1, 0): "Not worth it, longer and not more accurate",
    (1, -1): "Not worth it, longer and less accurate",
}


@dataclass(frozen=True)
class Form:
    """How a number is written: its factor, decimals and unit, and whether a plus is shown."""

    factor: float = 1
    places: int = 1
    unit: str = ""
    signed: bool = False

    def bare(self, value: float) -> str:
        """Without the unit, with a true minus sign."""
        return format(self.factor * value, f"{'+' if self.signed else ''}.{self.places}f").replace("-", "−")

    def whole(self, value: float | None) -> str:
        """With the unit; in words where there is no value."""
        return NOT_MEASURED if value is None else self.bare(value) + self.unit


SHARE, COUNT = Form(100, 1, "\u00a0%"), Form()
POINTS, RELATIVE = Form(100, 1, "\u00a0points", signed=True), Form(100, 1, "\u00a0%", signed=True)
SCORE = Form(1, 2, signed=True)


def sentence(change: BeforeAfter) -> str:
    """The verdict in one sentence. What was not measured is said so."""
    tokens, accuracy = change.figure(FigureName.TOKENS), change.figure(FigureName.ACCURACY)
    cost = change.figure(FigureName.TOKENS_PER_CORRECT)
    if tokens.after.value is None and accuracy.after.value is None:
        return f"Not measured: {change.where}."
    parts = [
        f"a reply went {_from_to(FigureName.TOKENS, tokens)} tokens",
        f"accuracy {_from_to(FigureName.ACCURACY, accuracy)}",
        f"and a right answer {_from_to(FigureName.TOKENS_PER_CORRECT, cost)} tokens",
    ]
    return f"{_judgement(tokens.change, accuracy.change)}: {', '.join(parts)}; AES {SCORE.whole(change.aes.value)}."


def _judgement(tokens: Estimate, accuracy: Estimate) -> str:
    if tokens.sign is None or accuracy.sign is None:
        return "Too little was measured to tell a change from chance"
    return _JUDGEMENT[tokens.sign, accuracy.sign]


def _from_to(name: FigureName, figure: Figure) -> str:
    if figure.before.value is None and figure.after.value is None:
        return NOT_MEASURED
    form = SHARE if name in _SHARES else COUNT
    return f"from {form.whole(figure.before.value)} to {form.whole(figure.after.value)}"


def figures_table(change: BeforeAfter) -> str:
    """Before, after and change of every figure, with 95 % intervals; each source by itself below."""
    aes = f"<tr><th scope=row>AES</th><td></td><td></td><td>{_cell(change.aes, SCORE)}</td></tr>"
    sources = "".join(
        f"<details><summary>{esc(source)}</summary>{_table(change, figures)}</details>"
        for source, figures in sorted(change.by_source.items())
    )
    return _table(change, change.figures, aes) + sources


def _table(change: BeforeAfter, figures: Mapping[FigureName, Figure], last: str = "") -> str:
    before, after = (f"<small>version {esc(version)}</small>" for version in change.versions)
    columns = (f"Before {before}", f"After {after}", "Change <small>95 % interval</small>")
    head = "".join(f"<th scope=col>{column}</th>" for column in columns)
    rows = "".join(_row(name, figures.get(name, Figure())) for name in LABELS)
    return f"<table class=figures><thead><tr><td></td>{head}</tr></thead><tbody>{rows}{last}</tbody></table>"


def _row(name: FigureName, figure: Figure) -> str:
    plain, moved = (SHARE, POINTS) if name in _SHARES else (COUNT, RELATIVE)
    cells = (_cell(figure.before, plain), _cell(figure.after, plain), _cell(figure.change, moved))
    return f"<tr><th scope=row>{LABELS[name]}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _cell(estimate: Estimate, form: Form) -> str:
    """The value, and its interval on a line of its own."""
    if estimate.value is None:
        return f"<span class=none>{NOT_MEASURED}</span>"
    if estimate.low is None or estimate.high is None:
        return f"{form.whole(estimate.value)}<small>no interval</small>"
    return f"{form.whole(estimate.value)}<small>{form.bare(estimate.low)} to {form.bare(estimate.high)}</small>"
