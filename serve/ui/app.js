// Ties the parts of the page together: the key, the model, the conversation and the gauges.
import { ask, key, Refused } from "./api.js";
import { Conversation } from "./chat.js";
import { HOW, sidesOf } from "./compare.js";
import { element, find, notice } from "./dom.js";
import { Gauges } from "./gauges.js";

const RETRY_MS = 5000;
const STAYS = "It stays in this tab and is forgotten when the tab is closed.";
const EXAMPLES = [
  "What is 7 + 8 - 4?",
  "What is 9 - 3 + 6?",
  "a = 3, b = 8, c = 5. Which two add up to 13?",
];

const gauges = new Gauges(showSides);
const conversation = new Conversation({
  sides: () => (find("compare").checked ? sidesOf(gauges.replicas()) : null),
  refused: (error) => { if (error.status === 401) askForKey(error.message); },
});

/** The switch follows what is served: it needs two versions at the same time. */
function showSides() {
  const sides = sidesOf(gauges.replicas()), box = find("compare"), note = find("compare-note");
  box.disabled = !sides;
  if (!sides) box.checked = false;
  if (sides) return note.replaceChildren(`${sides[0].name}, ${sides[1].name}. With temperature 0 only the weights differ.`);
  if (gauges.denied) return note.replaceChildren("Needs a key with the scope admin.");
  const versions = new Set(gauges.replicas().map(({ mark }) => mark)).size;
  if (versions > 2) return note.replaceChildren("More than two versions are served now.");
  note.replaceChildren(versions ? "One version is served. A second: " : "For a second version: ", element("code", "", HOW));
}

function askForKey(words) {
  find("key-note").textContent = words;
  if (!find("key-box").open) find("key-box").showModal();
  find("key").focus();
}

let retry = 0;

/** Finds out which models there are, which also tells whether a key is needed. */
async function start() {
  clearTimeout(retry);
  try {
    const { data } = await (await ask("v1/models")).json();
    find("model").replaceChildren(...data.map(({ id }) => element("option", "", id)));
    find("send").disabled = conversation.busy;
    find("key-box").close();
    notice();
    gauges.restart();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401) return askForKey(key.get() ? error.message : `The endpoint asks for a key. ${STAYS}`);
    notice(`${error.message} Asked again every ${RETRY_MS / 1000} s.`);
    retry = setTimeout(start, RETRY_MS);
  }
}

find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = find("key").value.trim();
  if (!key.fits(given)) return askForKey("A key holds letters, digits and signs only, without spaces.");
  key.set(given);
  find("key").value = "";
  start();
});
find("forget-key").addEventListener("click", () => { key.set(""); find("key-box").close(); start(); });
find("close-key").addEventListener("click", () => find("key-box").close());
find("open-key").addEventListener("click", () => askForKey(STAYS));

find("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  conversation.send(find("prompt").value);
});
find("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!find("send").disabled) find("composer").requestSubmit(find("send"));
});
// Closed, the options still say what is set.
find("chosen").parentElement.addEventListener("input", () => {
  const set = [...document.querySelectorAll(".fields label")].map((label) => [label.firstChild.data.trim(), label.control.value]);
  const named = set.filter(([, value]) => value !== "").map(([name, value]) => ` · ${name} ${value}`);
  find("chosen").textContent = `Options${named.join("").toLowerCase()}`;
});
find("stop").addEventListener("click", () => conversation.stop());
find("clear").addEventListener("click", () => conversation.clear());
find("examples").append(...EXAMPLES.map((text) => {
  const button = element("button", "", text);
  button.type = "button";
  button.addEventListener("click", () => conversation.send(text, { alone: true }));
  return button;
}));

showSides();
start();
