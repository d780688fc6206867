// One reply on the page: thinking apart, the answer, and a line on what it cost and which weights wrote it.
import { element } from "./dom.js";
import { count, tokens } from "./counts.js";

const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;

export class Reply {
  #texts = { thinking: document.createTextNode(""), answer: document.createTextNode("") };
  #chunks = { thinking: 0, answer: 0 };
  #times = { begun: 0, thinking: 0, answer: 0, last: 0 };
  #usage = null;
  #finish = null;

  constructor(title = "") {
    this.mark = "";
    this.root = element("article", "reply");
    this.root.setAttribute("aria-busy", "true");
    this.root.dataset.state = "waiting";
    if (title) this.root.append(element("h3", "", title));
    this.thinking = element("details", "thinking");
    this.thinking.open = true;
    this.thinking.hidden = true;
    this.label = element("summary");
    const thought = element("div", "text");
    thought.append(this.#texts.thinking);
    this.thinking.append(this.label, thought);
    this.answer = element("div", "text answer");
    this.answer.append(this.#texts.answer);
    this.foot = element("p", "cost", "Waiting for the first token…");
    this.root.append(this.thinking, this.answer, this.foot);
  }

  /** A request goes out: time counts from here. */
  begin() {
    this.#times.begun = performance.now();
  }

  /** A chunk of OpenAI's stream. The name of the reasoning field differs between versions of vLLM. */
  take(chunk) {
    if (chunk.system_fingerprint) this.mark = chunk.system_fingerprint;
    if (chunk.usage) this.#usage = chunk.usage;
    const choice = chunk.choices?.[0];
    this.#add("thinking", choice?.delta?.reasoning ?? choice?.delta?.reasoning_content);
    this.#add("answer", choice?.delta?.content);
    this.#finish = choice?.finish_reason ?? this.#finish;
    this.#draw();
  }

  #add(part, text) {
    if (!text) return;
    const now = performance.now();
    this.#times[part] ||= now;
    this.#times.last = now;
    this.#chunks[part] += 1;
    this.#texts[part].appendData(text);
    if (part === "thinking") {
      this.thinking.hidden = false;
      this.thinking.lastChild.scrollTop = this.thinking.lastChild.scrollHeight;
    }
    this.root.dataset.state = part;
  }

  /** Numbers and texts, for a comparison or for the conversation. `seconds` is from the request to the last token. */
  result() {
    const { begun, last } = this.#times;
    const text = this.#texts.answer.data, thought = this.#texts.thinking.data;
    return { ...tokens(this.#chunks, this.#usage), seconds: Math.max(0, last - begun) / 1000, text, thought, mark: this.mark };
  }

  /** Nothing more comes. `note` says why when the reply is not complete. */
  end(note = "") {
    this.root.dataset.state = note ? "broken" : "done";
    this.root.setAttribute("aria-busy", "false");
    this.#draw();
    const cut = this.#finish === "length" ? "Cut off at the limit of tokens." : "";
    if (note || cut) this.foot.append(element("span", "why", note || cut));
    if (!this.#times.last) this.foot.prepend(element("span", "", "No text."));
  }

  #draw() {
    const { begun, thinking, answer, last } = this.#times;
    const counted = tokens(this.#chunks, this.#usage), about = counted.exact ? "" : "≈ ";
    const state = answer || this.root.getAttribute("aria-busy") === "false" ? "Thought" : "Thinking";
    this.label.textContent = `${state} · ${about}${count(counted.thinking)} · ${seconds((answer || last) - thinking)}`;
    const parts = [element("span", "version mono", this.mark || "version unknown")];
    if (this.mark.includes("+")) {
      parts.push(element("span", "badge", "mixed"), element("span", "", "weights changed while it was written"));
    }
    if (last) parts.push(element("span", "", `${about}${count(counted.answer, "answer token")}`));
    if (last) parts.push(element("span", "", `${counted.total} in all`), element("span", "", seconds(last - begun)));
    this.foot.replaceChildren(...parts);
  }
}
