// The same prompt to two versions that are served side by side, and how their replies differ.
import { streamChat } from "./api.js";
import { difference } from "./counts.js";
import { element } from "./dom.js";
import { Reply } from "./reply.js";

export const HOW = "python -m jobs.canary start --candidate previous";

/** The two versions to compare, [{name, mark}, {name, mark}], from the replicas' states; null unless there are two. */
export function sidesOf(replicas) {
  const marks = new Map();
  for (const { mark, canary } of replicas) marks.set(mark, (marks.get(mark) ?? true) && Boolean(canary));
  if (marks.size !== 2) return null;
  const [one, other] = [...marks.keys()].sort((a, b) => marks.get(a) - marks.get(b) || versionOf(b) - versionOf(a));
  if (marks.get(one) === marks.get(other)) return [one, other].map((mark) => ({ name: mark, mark })); // amid a swap
  const role = versionOf(other) < versionOf(one) ? "Previous" : "Candidate";
  return [{ name: `Champion ${one}`, mark: one }, { name: `${role} ${other}`, mark: other }];
}

const versionOf = (mark) => Number(mark.match(/^v(\d+)/)?.[1] ?? 0);

/** Streams both replies into `turn`, side by side. The first refusal of either is thrown when both have ended. */
export async function compare(turn, body, sides, signal) {
  const pair = element("div", "pair"), said = element("p", "difference", "Both are asked the same, alone.");
  turn.append(pair, said);
  const replies = sides.map(({ name }) => new Reply(name));
  pair.append(...replies.map((reply) => reply.root));
  const ends = await Promise.allSettled(
    sides.map(({ mark }, side) => one(body, replies[side], mark, signal)),
  );
  const failed = ends.find(({ status }) => status === "rejected");
  if (signal.aborted || failed) said.textContent = "No comparison: not both replies are complete.";
  else said.textContent = difference(...replies.map((reply, side) => ({ ...reply.result(), name: sides[side].mark })));
  if (failed) throw failed.reason;
}

async function one(body, reply, mark, signal) {
  try {
    await streamChat(body, reply, { signal, mark });
    reply.end(reply.mark === mark ? "" : `Asked of ${mark}, written by ${reply.mark || "unknown weights"}.`);
  } catch (error) {
    reply.end(signal.aborted ? "Stopped." : error.message);
    if (!signal.aborted) throw error;
  }
}
