"""Charts as inline SVG: axes, lines and marks, and what a pointer shows where. Pure; colours are the style sheet's."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

WIDTH = 420.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 14.0, 12.0, 38.0
LABEL = (40.0, 14.0)  # width and height that a label needs

Form = Callable[[float], str]


@dataclass(frozen=True)
class Axis:
    """A range of values, the ticks in it, and how a tick is written."""

    low: float
    high: float
    ticks: tuple[float, ...]
    form: Form
    label: str = ""


def axis(
    values: Sequence[float],
    form: Form,
    label: str = "",
    *,
    least: float = 0.0,
    whole: bool = False,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> Axis:
    """An axis that holds `values` between round ticks, at least `least` wide; what it takes to be so wide does not go
    past `limits`. With `whole` the ticks are whole numbers."""
    low, high = min(values), max(values)
    spare = max(0.0, least - (high - low)) / 2
    low, high = min(low, max(low - spare, limits[0])), max(high, min(high + spare, limits[1]))
    step = _round_step((high - low) or 1.0)
    step = max(step, 1.0) if whole else step
    first, last = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    last = max(last, first + step)
    ticks = tuple(first + index * step for index in range(round((last - first) / step) + 1))
    return Axis(first, last, ticks, form, label)


def _round_step(span: float) -> float:
    """A step of 1, 2 or 5 times a power of ten that makes three to six parts of `span`."""
    power = 10 ** math.floor(math.log10(span / 4))
    return next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= 5.5)


@dataclass
class Chart:
    """An SVG drawing with two axes. `points` are the places that a pointer finds: (x, y, rows of label and text)."""

    x: Axis
    y: Axis
    height: float
    spoken: str
    points: list[dict[str, object]] = field(default_factory=list)
    labels: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.svg = ET.Element(
            "svg", {"viewBox": f"0 0 {WIDTH:g} {self.height:g}", "role": "img", "aria-label": self.spoken}
        )
        for tick in self.y.ticks:
            at = self._y(tick)
            self.add("line", "grid", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at)
            self.text(LEFT - 6, at + 4, self.y.form(tick), "tick end")
        for tick in self.x.ticks:
            self.text(self._x(tick), self.height - BOTTOM + 16, self.x.form(tick), "tick middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, self.height - 4, self.x.label, "axis middle")

    def _x(self, value: float) -> float:
        return LEFT + (value - self.x.low) / (self.x.high - self.x.low) * (WIDTH - LEFT - RIGHT)

    def _y(self, value: float) -> float:
        return self.height - BOTTOM - (value - self.y.low) / (self.y.high - self.y.low) * (self.height - BOTTOM - TOP)

    def add(self, tag: str, style: str, **places: float) -> ET.Element:
        """An element at places of the drawing, one decimal each."""
        attributes = {name: f"{value:.1f}" for name, value in places.items()}
        return ET.SubElement(self.svg, tag, {"class": style, **attributes})

    def text(self, x: float, y: float, text: str, style: str) -> None:
        """A text at a place of the drawing."""
        self.add("text", style, x=x, y=y).text = text

    def line(self, values: Sequence[tuple[float, float]], style: str) -> None:
        """A line through (x, y) values."""
        path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in values)
        ET.SubElement(self.svg, "polyline", {"class": style, "points": path})

    def dot(self, x: float, y: float, style: str, radius: float) -> None:
        """A dot at (x, y)."""
        self.add("circle", style, cx=self._x(x), cy=self._y(y), r=radius)

    def bars(self, xs: Sequence[float], ys: Sequence[float], style: str) -> None:
        """A cross through a point (the first of `xs` and `ys`), as long as their ranges."""
        x, y = self._x(xs[0]), self._y(ys[0])
        self.add("line", style, x1=self._x(min(xs)), x2=self._x(max(xs)), y1=y, y2=y)
        self.add("line", style, x1=x, x2=x, y1=self._y(min(ys)), y2=self._y(max(ys)))

    def has(self, style: str) -> bool:
        """Whether something of this style was drawn."""
        return any(element.get("class") == style for element in self.svg)

    def label(self, x: float, y: float, text: str) -> None:
        """A text beside a point, on the side where there is room; none where it would cover an earlier one."""
        left, top = self._x(x), self._y(y) - 7
        if any(abs(left - other) < LABEL[0] and abs(top - above) < LABEL[1] for other, above in self.labels):
            return
        self.labels.append((left, top))
        turned = left > WIDTH - 80
        self.text(left + (-9 if turned else 9), top, text, "name end" if turned else "name")

    def point(self, x: float, y: float | None, rows: Sequence[tuple[str, str]]) -> None:
        """What a pointer near (x, y) shows; without y it is found by x alone."""
        place = {"x": round(self._x(x), 1), "rows": [list(row) for row in rows]}
        self.points.append(place if y is None else {**place, "y": round(self._y(y), 1)})

    def markup(self, name: str) -> str:
        """The drawing; a script finds it by `name`."""
        self.svg.attrib |= {"data-chart": name, "tabindex": "0"}
        return ET.tostring(self.svg, encoding="unicode")
