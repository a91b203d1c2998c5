// The log of a job: its phases and what its workers said, the newest first; and the way to Spark's own page.

import { h } from "./dom.js";
import { reference, shortId } from "./format.js";
import { empty, loading, moment, problemNote, section, table } from "./pieces.js";
import { resource } from "./resource.js";
import { choose, chosen } from "./store.js";

/** So many lines are shown at first, and at most. */
const FIRST = 20;
const MOST = 1_000;
/** So many are read at least: the way to Spark's page may be further down. */
const READ = 100;

const pathOf = (id) => `/api/jobs/${encodeURIComponent(id)}/log?limit=${Math.max(READ, chosen(`log ${id}`, FIRST))}`;

export function logNeeds(id) {
  return [{ path: pathOf(id), every: 15_000, live: true }];
}

export function logSection(id) {
  const { data, problem } = resource(pathOf(id));
  if (!data) return section("Log", null, problem ? problemNote(problem) : loading());
  if (!data.items.length) return section("Log", null, empty("Nothing was said of it."));
  const shown = chosen(`log ${id}`, FIRST);
  const more = () => choose(`log ${id}`, MOST);
  return section(
    "Log",
    sparkLink(data.items),
    problemNote(problem),
    table("What happened, the newest first", ["what", "entity", "worker", "when"], data.items.slice(0, shown).map(line)),
    shown < MOST && (data.next || data.items.length > shown)
      ? h("p", { class: "more" }, h("button", { type: "button", onclick: more }, "Show all"))
      : null,
  );
}

function line({ number, kind, text, ref, worker_id: worker, at }) {
  const said = kind === "spark" ? "runs on Spark" : text;
  return {
    key: number,
    cells: [
      h("span", { class: "reason" }, kind === "said" || kind === "spark" ? said : h("strong", null, said)),
      ref ? reference(ref) : "–",
      worker ? h("code", null, shortId(worker)) : "–",
      moment(at),
    ],
  };
}

function sparkLink(lines) {
  const found = lines.find((each) => each.kind === "spark");
  if (!found || !/^https?:\/\//.test(found.text)) return null;
  return h("a", { href: found.text, rel: "noreferrer" }, "Spark's own page");
}
