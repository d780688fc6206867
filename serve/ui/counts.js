// Arithmetic of tokens, without a page.

export const count = (number, name = "token") => `${number} ${name}${number === 1 ? "" : "s"}`;

/**
 * Tokens of thinking and of the answer. `chunks` counts the pieces that arrived; the engine sends one a token, or a few
 * tokens in one when it is ahead of the connection. `usage` (OpenAI's, with the last chunk) replaces them: its total is
 * exact, and so are the parts where it knows them or where there is one part only.
 */
export function tokens(chunks, usage) {
  const total = usage?.completion_tokens;
  if (!Number.isFinite(total)) return { ...chunks, total: chunks.thinking + chunks.answer, exact: false };
  const told = usage.completion_tokens_details?.reasoning_tokens ?? 0;
  if (told > 0) return { thinking: told, answer: total - told, total, exact: true };
  if (!chunks.answer) return { thinking: chunks.thinking ? total : 0, answer: chunks.thinking ? 0 : total, total, exact: true };
  if (!chunks.thinking) return { thinking: 0, answer: total, total, exact: true };
  const counted = chunks.thinking + chunks.answer;
  const controls = 2; // the end of thinking and the end of the reply carry no text
  const thinking = total - counted <= controls ? chunks.thinking : Math.round((total * chunks.thinking) / counted);
  return { thinking, answer: total - thinking, total, exact: false };
}

/** What a reply concludes: its last boxed answer, or all of it. */
export const conclusion = (text) => [...text.matchAll(/\\boxed\{([^{}]*)\}/g)].at(-1)?.[1].trim() ?? text.trim();

/** One sentence on how the first of two replies differs from the second. */
export function difference(one, other) {
  const fewer = other.thinking - one.thinking;
  const share = other.thinking ? ` (${one.thinking} against ${other.thinking}, ${percent(-fewer / other.thinking)})` : "";
  const thought = fewer ? `${count(Math.abs(fewer), "thinking token")} ${fewer > 0 ? "fewer" : "more"}${share}` : "as many thinking tokens";
  const answer = one.answer - other.answer;
  const words = answer ? `${count(Math.abs(answer), "answer token")} ${answer > 0 ? "more" : "fewer"}` : "as many answer tokens";
  const saved = other.seconds - one.seconds;
  const time = Math.abs(saved) < 0.05 ? "as fast" : `${Math.abs(saved).toFixed(1)} s ${saved > 0 ? "faster" : "slower"}`;
  const same = conclusion(one.text) === conclusion(other.text) ? "the same answer" : "another answer";
  return `${one.name} against ${other.name}: ${thought}, ${words}, ${time}, ${same}.`;
}

const percent = (share) => `${share > 0 ? "+" : "−"}${Math.abs(share * 100).toFixed(0)} %`;

/**
 * Tokens per reply by mark, of the requests that ended between two looks at one replica. `before` and `now` are its
 * `served`; counters that went down belong to a replica that started anew.
 */
export function between(before, now) {
  const found = new Map();
  for (const [mark, { requests, output_tokens: made }] of Object.entries(now)) {
    const old = before[mark]?.requests <= requests ? before[mark] : { requests: 0, output_tokens: 0 };
    if (requests > old.requests) found.set(mark, { requests: requests - old.requests, tokens: made - old.output_tokens });
  }
  return found;
}
