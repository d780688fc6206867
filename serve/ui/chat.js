// The conversation: what was said so far, and one turn at a time.
import { streamChat, Refused } from "./api.js";
import { compare } from "./compare.js";
import { element, find, notice } from "./dom.js";
import { Reply } from "./reply.js";

const NUMBERS = { max_tokens: "max-tokens", temperature: "temperature", thinking_token_budget: "budget" };
const log = find("log"), field = find("prompt");

/** The request's body from the controls; a control left empty is not sent, so the endpoint decides. */
function requestOf(messages) {
  const body = { model: find("model").value, messages, stream: true, stream_options: { include_usage: true } };
  for (const [name, id] of Object.entries(NUMBERS)) {
    if (find(id).value !== "") body[name] = find(id).valueAsNumber;
  }
  if (find("effort").value) body.reasoning_effort = find("effort").value;
  return body;
}

/** Scrolls down with what is written, unless the reader has scrolled up. */
function follow() {
  let near = true;
  log.addEventListener("scroll", () => { near = log.scrollHeight - log.scrollTop - log.clientHeight < 80; });
  new MutationObserver(() => { if (near) log.scrollTop = log.scrollHeight; })
    .observe(log, { childList: true, subtree: true, characterData: true });
}

export class Conversation {
  #said = [];
  #running = null;

  /** `sides()` gives the two versions to compare, or null; `refused` hears of a Refused. */
  constructor({ sides, refused }) {
    Object.assign(this, { sides, refused });
    follow();
  }

  get busy() {
    return this.#running !== null;
  }

  /** Sends `text` after what was said, or `alone`: then a new conversation begins with it. */
  async send(text, { alone = false } = {}) {
    if (find("send").disabled || !text.trim()) return; // busy, or no model is known yet
    this.#switch(new AbortController());
    notice();
    const sides = this.sides();
    if ((alone || sides) && this.#said.length) {
      this.#said = [];
      log.append(element("p", "divider", "New conversation"));
    }
    const turn = element("div", "turn");
    turn.append(element("p", "said text", text));
    find("empty").hidden = true;
    log.append(turn);
    log.scrollTop = log.scrollHeight;
    field.value = "";
    try {
      await (sides ? this.#compare(turn, text, sides) : this.#answer(turn, text));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#giveBack(turn, text, error);
    } finally {
      this.#switch(null);
    }
  }

  async #answer(turn, text) {
    const reply = new Reply(), signal = this.#running.signal, question = { role: "user", content: text };
    turn.append(reply.root);
    try {
      await streamChat(requestOf([...this.#said, question]), reply, { signal });
      reply.end();
    } catch (error) {
      reply.end(signal.aborted ? "Stopped." : error.message);
      if (!signal.aborted) throw error;
    }
    if (!turn.isConnected) return; // cleared away meanwhile
    const { text: content } = reply.result();
    if (content) this.#said.push(question, { role: "assistant", content });
    else reply.foot.append(element("span", "why", "Without an answer, this turn is left out of the conversation."));
  }

  async #compare(turn, text, sides) {
    await compare(turn, requestOf([{ role: "user", content: text }]), sides, this.#running.signal);
  }

  /** A turn of which nothing arrived is taken back, and its text returns to the field to be sent again. */
  #giveBack(turn, text, error) {
    const written = [...turn.querySelectorAll(".reply .text")].some((part) => part.textContent);
    if (!written) {
      turn.remove();
      field.value ||= text;
      find("empty").hidden = Boolean(log.querySelector(".turn"));
    }
    notice(error.message, error.wait);
    this.refused(error);
  }

  #switch(controller) {
    this.#running = controller;
    find("send").disabled = this.busy;
    const stop = find("stop"), held = document.activeElement === stop;
    stop.disabled = !this.busy;
    if (held) field.focus(); // a disabled button would lose the focus to nowhere
  }

  stop() {
    this.#running?.abort();
  }

  clear() {
    this.stop();
    this.#said = [];
    for (const part of log.querySelectorAll(".turn, .divider")) part.remove();
    find("empty").hidden = false;
    notice();
    field.focus();
  }
}
