// Lists that come in pages, each with the cursor of the next.

import { h } from "./dom.js";
import { resource } from "./resource.js";
import { choose, chosen } from "./store.js";

/** Paths of the pages that are open: the first, and what was asked for after it. */
export function pagePaths(first) {
  const wanted = chosen(`pages ${first}`, 1);
  const paths = [first];
  while (paths.length < wanted) {
    const next = resource(paths.at(-1)).data?.next;
    if (!next) break;
    paths.push(`${first}${first.includes("?") ? "&" : "?"}after=${encodeURIComponent(next)}`);
  }
  return paths;
}

/** What the open pages hold: `{items, more, problem, loaded}`. */
export function pages(first) {
  const read = pagePaths(first).map(resource);
  return {
    items: read.flatMap((each) => each.data?.items ?? []),
    more: Boolean(read.at(-1).data?.next),
    problem: read.find((each) => each.problem)?.problem ?? null,
    loaded: read[0].data !== null,
  };
}

export function moreButton(first, found) {
  if (!found.more) return null;
  const more = () => choose(`pages ${first}`, pagePaths(first).length + 1);
  return h("p", { class: "more" }, h("button", { type: "button", onclick: more }, "Show more"));
}
