"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const tip = document.querySelector(".tip");

  // The tooltip: one element, filled with text nodes only.
  const names = [["i", "token"], ["part", "part"], ["reward", "reward"], ["advantage", "advantage"]];
  function show(token) {
    const list = document.createElement("dl");
    for (const [key, label] of names) {
      const value = key === "part" ? token.parentElement.dataset.part : token.dataset[key];
      if (value === undefined) continue;
      const term = document.createElement("dt"), detail = document.createElement("dd");
      term.textContent = label;
      detail.textContent = value;
      list.append(term, detail);
    }
    tip.replaceChildren(list);
    tip.hidden = false;
    const at = token.getClientRects()[0] || token.getBoundingClientRect();
    const { width, height } = tip.getBoundingClientRect();
    const below = at.bottom + 8 + height < innerHeight;
    tip.style.left = Math.max(12, Math.min(at.left, document.documentElement.clientWidth - width - 12)) + "px";
    tip.style.top = (below ? at.bottom + 8 : Math.max(8, at.top - height - 8)) + "px";
    token.setAttribute("aria-describedby", tip.id);
  }
  function hide() {
    tip.hidden = true;
    all("[aria-describedby]").forEach((token) => token.removeAttribute("aria-describedby"));
  }
  const tokenOf = (event) => event.target.closest && event.target.closest(".t");
  document.addEventListener("pointerover", (event) => { hide(); const token = tokenOf(event); if (token) show(token); });
  document.addEventListener("focusin", (event) => { hide(); const token = tokenOf(event); if (token) show(token); });
  document.addEventListener("focusout", hide);
  document.addEventListener("click", (event) => { const token = tokenOf(event); if (token) { token.focus(); show(token); } });
  addEventListener("scroll", hide, { passive: true });

  // One tab stop a trace; arrow keys move from token to token.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const token = tokenOf(event);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -1e9, End: 1e9 }[event.key];
    if (!token || !step) return;
    event.preventDefault();
    const row = all(".t", token.closest(".text"));
    const next = row[Math.max(0, Math.min(row.length - 1, row.indexOf(token) + step))];
    row.forEach((other) => { other.tabIndex = -1; });
    next.tabIndex = 0;
    next.focus();
  });

  // Tint by part (the style sheet's), reward or advantage (strength relative to the largest on the page).
  function tint(kind) {
    document.body.dataset.tint = kind;
    const tokens = all(".t");
    const most = Math.max(1e-9, ...tokens.map((token) => Math.abs(Number(token.dataset[kind] || 0))));
    for (const token of tokens) {
      const value = Number(token.dataset[kind] || 0);
      const strength = kind === "part" ? 0 : Math.abs(value) / most;
      token.style.background = strength ? `rgba(var(--${value > 0 ? "plus" : "minus"}), ${(0.08 + 0.5 * strength).toFixed(3)})` : "";
    }
  }
  const press = (button, group) => all(group).forEach((other) => other.setAttribute("aria-pressed", other === button));
  all("[data-tint-by]").forEach((button) =>
    button.addEventListener("click", () => { press(button, "[data-tint-by]"); tint(button.dataset.tintBy); }));

  // Filters: the verdict by a button, other fields by a choice.
  const shown = document.querySelector(".shown"), pickers = all("[data-filter]");
  let verdict = "";
  function filter() {
    let count = 0;
    for (const trace of all("details.trace")) {
      const fits = (!verdict || trace.dataset.verdict === verdict)
        && pickers.every((picker) => !picker.value || trace.dataset[picker.dataset.filter] === picker.value);
      trace.hidden = !fits;
      count += fits;
    }
    all(".group").forEach((group) => { group.hidden = !group.querySelector(".trace:not([hidden])"); });
    document.querySelector(".empty").hidden = count > 0;
    shown.textContent = `${count} of ${all("details.trace").length} traces`;
  }
  all("[data-show]").forEach((button) =>
    button.addEventListener("click", () => { press(button, "[data-show]"); verdict = button.dataset.show; filter(); }));
  pickers.forEach((picker) => picker.addEventListener("change", filter));
  const openAll = document.querySelector("#open-all");
  if (openAll) openAll.addEventListener("click", () => {
    const traces = all("details.trace"), open = traces.some((trace) => !trace.open);
    traces.forEach((trace) => { trace.open = open; });
    openAll.textContent = open ? "Close all" : "Open all";
  });
})();
