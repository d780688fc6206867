// Charts: the nearest point under the pointer, or by the arrow keys, with its numbers.
(() => {
  const found = JSON.parse(document.querySelector("#charts").textContent);
  const make = (svg, tag, style) => {
    const shape = document.createElementNS("http://www.w3.org/2000/svg", tag);
    shape.setAttribute("class", style);
    shape.style.display = "none";
    return svg.appendChild(shape);
  };
  const set = (shape, values) => Object.entries(values).forEach(([name, value]) => shape.setAttribute(name, value));

  for (const svg of document.querySelectorAll("svg[data-chart]")) {
    const points = found[svg.dataset.chart], box = svg.viewBox.baseVal;
    const cursor = make(svg, "line", "cursor"), spot = make(svg, "circle", "spot");
    let at = -1;
    function show(index) {
      at = Math.max(0, Math.min(points.length - 1, index));
      const { x, y, rows } = points[at], area = svg.getBoundingClientRect(), scale = area.width / box.width;
      cursor.style.display = y === undefined ? "" : "none";
      spot.style.display = y === undefined ? "none" : "";
      set(cursor, { x1: x, x2: x, y1: 8, y2: box.height - 38 });
      if (y !== undefined) set(spot, { cx: x, cy: y, r: 8 });
      const left = area.left + x * scale, top = area.top + (y === undefined ? 0.3 * box.height : y) * scale;
      tooltip.show(rows, { left: left + 12, top: top - 8, bottom: top + 8 }, svg);
    }
    function leave() {
      cursor.style.display = spot.style.display = "none";
      tooltip.hide();
    }
    function nearest(event) {
      const area = svg.getBoundingClientRect(), scale = box.width / area.width;
      const x = (event.clientX - area.left) * scale, y = (event.clientY - area.top) * scale;
      const far = (point) => Math.hypot(point.x - x, point.y === undefined ? 0 : point.y - y);
      return points.reduce((best, point, index) => (far(point) < far(points[best]) ? index : best), 0);
    }
    svg.addEventListener("pointermove", (event) => show(nearest(event)));
    svg.addEventListener("pointerdown", (event) => show(nearest(event)));
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return leave();
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9 }[event.key];
      if (!step) return;
      event.preventDefault();
      show(at < 0 ? 0 : at + step);
    });
  }
})();
