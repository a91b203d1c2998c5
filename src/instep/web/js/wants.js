// Wants: requests for fresh partitions, and their states.

import { act, isBusy } from "./act.js";
import { path } from "./api.js";
import { h } from "./dom.js";
import { exactTime, reference, shortId, span } from "./format.js";
import { moreButton, pagePaths, pages } from "./pages.js";
import { action, empty, loading, moment, problemNote, table, view } from "./pieces.js";
import { link } from "./route.js";
import { chip } from "./states.js";

const ENDED = new Set(["Successful", "Failed", "Canceled", "UpstreamFailed"]);
const first = (query) => path("/api/wants", { ended: query.get("all") ? "true" : "", limit: 50 });

export function needs({ query }) {
  return pagePaths(first(query)).map((each, place) => ({ path: each, every: 8_000, live: place === 0 }));
}

export function wantsView({ query }) {
  const all = Boolean(query.get("all"));
  const found = pages(first(query));
  const other = h(
    "a",
    { href: link("wants", null, { all: all ? "" : "1" }) },
    all ? "Only open ones" : "Ended ones too",
  );
  return view(
    "Wants",
    other,
    problemNote(found.problem),
    found.loaded ? list(found.items, all) : found.problem ? null : loading(),
    moreButton(first(query), found),
  );
}

function list(items, all) {
  if (!items.length) return empty(all ? "There are no wants yet." : "There are no open wants.");
  const rows = items.map((each) => ({
    key: each.id,
    cells: [
      h("code", null, shortId(each.id)),
      chip(each.state),
      each.refs.map((ref, place) => [
        place ? ", " : "",
        h("a", { href: link("partitions", ref) }, reference(ref, each.generation)),
      ]),
      author(each.by),
      needed(each),
      moment(each.created_at),
      each.ended_at ? moment(each.ended_at) : "–",
      [each.error ? h("span", { class: "reason" }, each.error) : null, ENDED.has(each.state) ? null : cancel(each)],
    ],
  }));
  return table("Wants", ["want", "state", "partitions", "by", "fresh", "made", "ended", ""], rows);
}

/** A job makes wants too: for what it is to be made from. */
function author(by) {
  const job = /^job ([0-9a-f-]{36})$/.exec(by)?.[1];
  return job ? ["job ", h("a", { href: link("jobs", job) }, h("code", null, shortId(job)))] : by || "–";
}

function needed({ fresh_within: within, as_of: asOf }) {
  if (within !== null) return `within ${span(within)}`;
  return asOf === null ? "any" : `as of ${exactTime(asOf)}`;
}

function cancel(each) {
  const name = `cancel ${each.id}`;
  const ask = () =>
    act(name, `/api/wants/${encodeURIComponent(each.id)}/cancel`, {}, () => `Want ${shortId(each.id)} is canceled.`);
  return action("Cancel", isBusy(name), ask, "quiet");
}
