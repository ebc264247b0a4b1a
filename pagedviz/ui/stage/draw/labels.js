// The words for a physical block: for a screen reader, in a tip, and in the summary of a big pool.
import { isHost } from "../state/entries.js";
import { listed } from "../text.js";
import { hashWords, ordinal } from "./hashes.js";

export const transferWords = ({ id, kind }) => `${kind} ${id}`;

export function physicalLabel(view, blockSize) {
  const where = isHost(view.entry) ? "host block" : "physical block";
  const id = isHost(view.entry) ? view.name : view.block;
  const group = view.group === null ? "" : `, group ${view.group}`;
  if (view.kind === "null") return `${where} ${id}, the null block: reserved, never handed out, never written`;
  const pending = Object.values(view.coming).filter(({ fill }) => fill === "pending").length;
  const drafts = Object.values(view.coming).filter(({ fill }) => fill === "draft").length;
  const unverified = view.marks.filter((found) => found?.mark === "unverified").length;
  const rest = `${pending ? `, ${pending} in this step's launch` : ""}${drafts ? `, ${drafts} drafted` : ""}${unverified ? `, ${unverified} not verified yet` : ""}`;
  const filled = `${view.tokens.length} of ${blockSize} slots filled${rest}`;
  const hash = view.kept ? `, cached, ${hashWords(view.kept)}` : "";
  if (view.kind === "pinned" && view.transfer) return `${where} ${id}, held by ${transferWords(view.transfer)}, named by no table${hash}`;
  if (view.kind === "pinned") return `${where} ${id}, held for a copy under way, named by no table yet, ${filled}`;
  if (view.kind === "free") {
    return `${where} ${id}, free${group}, ${view.kept ? `still holds ${view.kept.tokens.length} tokens${hash}, ${ordinal(view.place)} out of the free queue` : "nobody's"}`;
  }
  const names = view.seqs.length ? `named by ${listed(view.seqs)}` : "named by no table";
  const pin = view.transfer ? `, one of them ${transferWords(view.transfer)}` : "";
  return `${where} ${id}${group}, ${names}, ${view.refCount} ${view.refCount === 1 ? "reference" : "references"}${pin}, ${filled}${hash}`;
}
