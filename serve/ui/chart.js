// Tokens per reply over time: a line for each version, and the moments at which weights were swapped.
import { drawn, element, find } from "./dom.js";

const WINDOW_MS = 300_000, COLOURS = 4;
const BOX = { left: 30, right: 316, top: 8, bottom: 96 };

export class Chart {
  #points = [];
  #swaps = [];
  #order = [];

  /** The number (from 0) of a version's colour: by order of appearance. */
  colour(mark) {
    if (!this.#order.includes(mark)) this.#order.push(mark);
    return this.#order.indexOf(mark) % COLOURS;
  }

  point(at, mark, value) {
    this.#points.push({ at, mark, value });
  }

  swap(at, text) {
    this.#swaps.push({ at, text });
  }

  draw(now) {
    const fresh = ({ at }) => now - at < WINDOW_MS;
    this.#points = this.#points.filter(fresh);
    this.#swaps = this.#swaps.filter(fresh);
    const most = Math.max(1, ...this.#points.map(({ value }) => value)), scale = this.#points.length ? most.toFixed(0) : "";
    const x = (at) => BOX.right - ((now - at) / WINDOW_MS) * (BOX.right - BOX.left);
    const y = (value) => BOX.bottom - (value / most) * (BOX.bottom - BOX.top);
    const lines = new Map();
    for (const { at, mark, value } of this.#points) {
      lines.set(mark, [...(lines.get(mark) ?? []), { at, value, x: x(at).toFixed(1), y: y(value).toFixed(1) }]);
    }
    find("chart").replaceChildren(...this.#frame(scale), ...this.#swaps.map((swap) => this.#moment(swap, x)),
      ...[...lines].flatMap(([mark, points]) => this.#line(mark, points)));
    this.#legend(lines);
  }

  #frame(scale) {
    const { left, right, top, bottom } = BOX;
    return [
      drawn("line", { class: "grid", x1: left, x2: right, y1: bottom, y2: bottom }),
      drawn("line", { class: "grid", x1: left, x2: right, y1: top, y2: top }),
      drawn("text", { class: "end", x: left - 5, y: top + 4 }, scale),
      drawn("text", { class: "end", x: left - 5, y: bottom + 4 }, "0"),
      drawn("text", { x: left, y: bottom + 13 }, "−5 min"),
      drawn("text", { class: "end", x: right, y: bottom + 13 }, "now"),
    ];
  }

  #moment({ at, text }, x) {
    const line = drawn("line", { class: "swap", x1: x(at).toFixed(1), x2: x(at).toFixed(1), y1: BOX.top, y2: BOX.bottom });
    line.append(drawn("title", {}, text));
    return line;
  }

  #line(mark, points) {
    const last = points.at(-1), colour = `c${this.colour(mark)}`;
    const path = drawn("polyline", { class: colour, points: points.map((point) => `${point.x},${point.y}`).join(" ") });
    return [path, drawn("circle", { class: colour, cx: last.x, cy: last.y, r: 3 })];
  }

  #legend(lines) {
    const items = [...lines].map(([mark, points]) => {
      const item = element("li", `c${this.colour(mark)}`);
      item.append(element("i"), element("span", "mono", mark), element("b", "", points.at(-1).value.toFixed(1)));
      return item;
    });
    if (this.#swaps.length) {
      const item = element("li", "swapped");
      item.append(element("i"), element("span", "", this.#swaps.length === 1 ? "a swap" : `${this.#swaps.length} swaps`));
      items.push(item);
    }
    find("legend").replaceChildren(...items);
    const spoken = [...lines].map(([mark, points]) => `${mark} ${points.at(-1).value.toFixed(1)}`);
    const swaps = this.#swaps.length ? `; ${this.#swaps.length} swaps` : "";
    find("chart").setAttribute("aria-label", spoken.length ? `Tokens per reply: ${spoken.join(", ")}${swaps}` : "No replies yet");
  }
}
