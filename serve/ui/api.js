// The endpoint over HTTP: the key, refusals in words, and streams of events.
import { pause } from "./dom.js";

const STORED = "endpoint-key";
const TRIES = 40;

export const key = {
  get: () => sessionStorage.getItem(STORED) ?? "",
  set: (value) => (value ? sessionStorage.setItem(STORED, value) : sessionStorage.removeItem(STORED)),
  fits: (value) => /^[\x21-\x7e]+$/.test(value), // what a header can hold
};

const WORDS = {
  0: "The endpoint does not answer: it is not running, or the network is down.",
  401: "The endpoint asks for a key, or does not know this one.",
  403: "This key is not allowed to do that.",
  404: "The endpoint does not have that.",
  412: "No replica with these weights answered.",
  413: "The request is too large for the endpoint.",
  429: "Too many requests.",
  503: "The endpoint takes no requests now: it is starting, full, or changing its weights.",
  504: "The endpoint did not answer in time.",
};

/** The endpoint (or the network, status 0) said no. `wait`: seconds until it is worth asking again, or 0. */
export class Refused extends Error {
  constructor(status, detail = "", wait = 0) {
    const words = WORDS[status] ?? (status < 500 ? "The endpoint refused the request." : "The endpoint failed.");
    super(detail ? `${words} It says: ${String(detail).slice(0, 400)}` : words);
    this.status = status;
    this.wait = wait;
  }
}

function secondsUntil(header) {
  if (!header) return 0;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : 0;
}

async function refusal(reply) {
  let detail = "";
  try {
    const body = JSON.parse(await reply.text());
    detail = body.error?.message ?? body.message ?? "";
  } catch {
    // A proxy's answer is often no JSON; the status says enough.
  }
  return new Refused(reply.status, detail, secondsUntil(reply.headers.get("retry-after")));
}

/** GET, or POST where there is a body. Throws Refused unless the answer is 2xx; the abort's reason when stopped. */
export async function ask(path, { body, signal, headers = {} } = {}) {
  const sent = { ...headers };
  if (key.get()) sent.authorization = `Bearer ${key.get()}`;
  if (body) sent["content-type"] = "application/json";
  let reply;
  try {
    reply = await fetch(path, {
      method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers: sent, signal,
      cache: "no-store", credentials: "omit", redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0);
  }
  if (!reply.ok) throw await refusal(reply);
  return reply;
}

/** The data of each server-sent event. */
async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // already closed or aborted: nothing to end
  }
}

/**
 * Asks until a replica with the weights of `mark` takes the request: any other answers 412. The time between two tries
 * is random: two that ask in step would each meet the other's replica for ever where a balancer takes turns.
 */
async function askMarked(path, options, mark, onTry) {
  const headers = { "if-match": `"${mark}"` };
  for (let tried = 1; ; tried += 1) {
    onTry();
    try {
      return await ask(path, { ...options, headers });
    } catch (error) {
      if (error.status !== 412) throw error;
      if (tried === TRIES) throw new Refused(412, `none of ${TRIES} tries met ${mark}; it may be served no more`);
      await pause(50 + 350 * Math.random(), options.signal);
    }
  }
}

/** Streams one chat completion into `reply` (see reply.js). With `mark`, only from a replica with these weights. */
export async function streamChat(body, reply, { signal, mark } = {}) {
  const path = "v1/chat/completions", options = { body, signal };
  reply.begin();
  const answer = mark ? await askMarked(path, options, mark, () => reply.begin()) : await ask(path, options);
  try {
    for await (const data of events(answer)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Refused(Number(chunk.error.code) || 500, chunk.error.message);
      reply.take(chunk);
    }
  } catch (error) {
    if (signal?.aborted || error instanceof Refused) throw error;
    const broke = error instanceof SyntaxError ? "a piece of the reply is not readable" : "the connection broke";
    throw new Refused(0, broke);
  }
  throw new Refused(0, "the reply ended before it was complete");
}
