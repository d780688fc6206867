// The replicas, asked every two seconds while the page is looked at. Any replica may answer for itself alone, so what was
// heard is kept by replica, and one that was not heard of for a while is shown as such, then forgotten.
import { ask, key, Refused } from "./api.js";
import { Chart } from "./chart.js";
import { between, count } from "./counts.js";
import { element, find } from "./dom.js";

const EVERY_MS = 2000, TIMEOUT_MS = 5000, QUIET_MS = 12_000, GONE_MS = 60_000;
const NEEDS_KEY = "These gauges need a key with the scope admin.";

const NONE = "no weights yet"; // what a replica serves before its first ones are confirmed
const markOf = ({ version, digest }) => (version === null ? NONE : `v${version}-${digest.slice(0, 8)}`);
const number = (value, digits = 0) => (Number.isFinite(value) ? value.toFixed(digits) : "–");

export class Gauges {
  #known = new Map();
  #cards = new Map();
  #chart = new Chart();
  #timer = 0;
  #denied = false;
  #asking = false;

  /** `changed` hears of every answer and refusal. */
  constructor(changed) {
    this.changed = changed;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#rest() : this.look()));
  }

  /** True when the key at hand may not see the replicas. */
  get denied() {
    return this.#denied;
  }

  /** The replicas heard of lately: [{mark, canary}]. */
  replicas() {
    const lately = performance.now() - QUIET_MS, serving = ({ at, mark }) => at >= lately && mark !== NONE;
    return [...this.#known.values()].filter(serving).map(({ mark, state }) => ({ mark, canary: state.canary }));
  }

  /** Begins anew, as with another key. */
  restart() {
    this.#denied = false;
    this.look();
  }

  #rest() {
    clearTimeout(this.#timer);
  }

  async look() {
    this.#rest();
    if (document.hidden || this.#denied || this.#asking) return;
    this.#asking = true;
    try {
      const { states, words } = await this.#ask();
      this.#hear(states, performance.now());
      find("gauges-note").textContent = words || this.#summary();
      find("gauges").hidden = this.#denied;
      this.#draw(performance.now());
      this.changed();
    } finally { // whatever went wrong this time, the next look may do better
      this.#asking = false;
      if (!this.#denied && !document.hidden) this.#timer = setTimeout(() => this.look(), EVERY_MS);
    }
  }

  /** The states of the replicas that answered, or words on why there are none. */
  async #ask() {
    const asked = key.get();
    try {
      const reply = await ask("admin/version", { signal: AbortSignal.timeout(TIMEOUT_MS) });
      const { replicas } = await reply.json().catch((error) => {
        throw error instanceof TypeError ? new Refused(0, "the connection broke") : error;
      });
      return { states: replicas, words: "" };
    } catch (error) {
      if (error instanceof SyntaxError) return { states: [], words: "The replicas' answer is not readable." };
      if (error.name === "TimeoutError") return { states: [], words: "The replicas do not answer in time." };
      if (!(error instanceof Refused)) throw error;
      this.#denied = (error.status === 401 || error.status === 403) && key.get() === asked;
      return { states: [], words: this.#denied ? NEEDS_KEY : error.message };
    }
  }

  #summary() {
    const heard = this.replicas(), versions = new Set(heard.map(({ mark }) => mark)).size;
    return heard.length ? `${count(heard.length, "replica")}, ${count(versions, "version")}.` : "No replica has answered yet.";
  }

  #hear(states, now) {
    const sums = new Map();
    for (const state of states) {
      const old = this.#known.get(state.replica), mark = markOf(state);
      const swapped = old && old.mark !== mark;
      if (swapped) this.#swapped(now, `Replica ${state.rank} went from ${old.mark} to ${mark}`);
      for (const [served, { requests, tokens }] of between(old?.state.served ?? {}, state.served ?? {})) {
        const sum = sums.get(served) ?? { requests: 0, tokens: 0 };
        sums.set(served, { requests: sum.requests + requests, tokens: sum.tokens + tokens });
      }
      this.#known.set(state.replica, { state, mark, at: now, swapped: swapped ? now : old?.swapped });
    }
    for (const [mark, { requests, tokens }] of sums) this.#chart.point(now, mark, tokens / requests);
  }

  #swapped(now, text) {
    this.#chart.swap(now, text);
    find("spoken").textContent = text;
  }

  #draw(now) {
    for (const [replica, { at }] of this.#known) if (now - at > GONE_MS) this.#forget(replica);
    const rows = [...this.#known.values()].sort((one, two) => one.state.rank - two.state.rank);
    find("replicas").replaceChildren(...rows.map((row) => this.#card(row, now)));
    this.#chart.draw(now);
  }

  #forget(replica) {
    this.#known.delete(replica);
    this.#cards.delete(replica);
  }

  /** The card of a replica: the one that is there while nothing on it changed, so that text on it can be selected. */
  #card({ state, mark, at, swapped }, now) {
    const note = since(now, at, swapped, state.rank), gauges = gaugesOf(state, mark);
    const looks = JSON.stringify([mark, state.canary, note, gauges, state.last_refusal]), old = this.#cards.get(state.replica);
    if (old?.looks === looks) return old.card;
    const card = element("li", "replica"), head = element("div", `head c${this.#chart.colour(mark)}`);
    this.#cards.set(state.replica, { looks, card });
    card.dataset.replica = state.replica;
    head.append(element("i"), element("b", "mono", mark));
    if (state.canary) head.append(element("span", "badge", "canary"));
    head.append(element("span", "since", note));
    const values = element("dl");
    for (const [label, value, title] of gauges) {
      const pair = element("div");
      pair.title = title;
      pair.append(element("dt", "", label), element("dd", "", value));
      values.append(pair);
    }
    card.append(head, values);
    const refused = state.last_refusal;
    if (refused) card.append(element("p", "refusal", `Refused v${refused.version}: ${refused.reason}`));
    return card;
  }
}

function since(now, at, swapped, rank) {
  if (now - at > QUIET_MS) return `replica ${rank}, not heard of for ${number((now - at) / 1000)} s`;
  if (swapped && now - swapped < 60_000) return `replica ${rank}, swapped ${number((now - swapped) / 1000)} s ago`;
  return `replica ${rank}`;
}

/** Label, value and explanation of each gauge of one replica. */
function gaugesOf(state, mark) {
  const served = Object.values(state.served ?? {}), now = state.served?.[mark];
  const parity = Number.isFinite(state.parity) ? state.parity.toPrecision(2) : "–";
  return [
    ["Tokens / reply", now?.requests ? number(now.output_tokens / now.requests, 1) : "–", "Of the weights served now"],
    ["Requests", number(served.reduce((sum, { requests }) => sum + requests, 0)), "Since the replica started"],
    ["Failed", number(served.reduce((sum, { failed }) => sum + failed, 0)), "Ended by a fault, or cut off"],
    ["Inside / waiting", `${number(state.inside)} / ${number(state.waiting)}`, "Requests in the engine, and before the gate"],
    ["Parity", parity, "Mean difference of log-probabilities to those the snapshot came with"],
    ["Swaps", number(state.swaps), "Since the replica started"],
    ["Mixed", number(state.mixed), "Replies that were written across a swap"],
    ["Last pause", state.swaps ? `${number(state.pause_seconds * 1000)} ms` : "–", "How long the last swap stopped the engine"],
    ["Last drain", state.swaps ? `${number(state.drain_seconds, 1)} s` : "–", "How long the last swap waited for running requests"],
  ];
}
