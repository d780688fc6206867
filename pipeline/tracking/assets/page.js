"use strict";
// One tooltip for the page, filled with text nodes only: rows of label and text, near a place, describing an element.
const tooltip = (() => {
  const tip = document.querySelector(".tip");
  function hide() {
    tip.hidden = true;
    document.querySelectorAll("[aria-describedby]").forEach((owner) => owner.removeAttribute("aria-describedby"));
  }
  function show(rows, at, owner) {
    const list = document.createElement("dl");
    for (const [label, text] of rows) {
      const term = document.createElement("dt"), detail = document.createElement("dd");
      term.textContent = label;
      detail.textContent = text;
      list.append(term, detail);
    }
    tip.replaceChildren(list);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const below = at.bottom + 8 + height < innerHeight;
    tip.style.left = Math.max(12, Math.min(at.left, document.documentElement.clientWidth - width - 12)) + "px";
    tip.style.top = (below ? at.bottom + 8 : Math.max(8, at.top - height - 8)) + "px";
    owner.setAttribute("aria-describedby", tip.id);
  }
  return { show, hide };
})();
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const hide = tooltip.hide;

  // A token's part and what it was worth.
  function show(token) {
    const { i, reward, advantage } = token.dataset;
    const rows = [["token", i], ["part", token.parentElement.dataset.part], ["reward", reward], ["advantage", advantage]];
    const at = token.getClientRects()[0] || token.getBoundingClientRect();
    tooltip.show(rows.filter(([, text]) => text !== undefined), at, token);
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
