// What the other parts share. Text goes into the page as text nodes only, whoever wrote it.

export const find = (id) => document.getElementById(id);

export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== "") made.textContent = text;
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function drawn(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}

export const pause = (ms, signal) =>
  new Promise((done, failed) => {
    signal?.throwIfAborted();
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); failed(signal.reason); }, { once: true });
  });

// One line for what went wrong, with the seconds until the endpoint takes requests again counted down. The seconds are
// apart from the words, so that a screen reader hears the words once.
let ticking = 0;

export function notice(words = "", waitSeconds = 0) {
  clearInterval(ticking);
  find("notice-words").textContent = words;
  const timer = find("notice-timer"), until = performance.now() + waitSeconds * 1000;
  const tick = () => {
    const left = Math.ceil((until - performance.now()) / 1000);
    timer.textContent = left > 0 ? `Free again in ${left} s.` : "You can send again now.";
    if (left <= 0) clearInterval(ticking);
  };
  timer.textContent = "";
  if (waitSeconds > 0) { tick(); ticking = setInterval(tick, 250); }
}
