// The status matrix: a row for each namespace, a column for each entity, the worst first.

import { h } from "./dom.js";
import { count } from "./format.js";
import { problemNote, section, warning } from "./pieces.js";
import { link } from "./route.js";
import { chip, glyph, words } from "./states.js";
import { choose, chosen } from "./store.js";

/** From the worst to the best. */
const ORDER = ["Unknown", "NotIndexed", "Backfilling", "Error", "Indexing", "Indexed"];
/** So many namespaces are shown at first, and with each step. */
const STEP = 60;

export function matrixSection({ data, problem }) {
  if (problem && !data) return section("Namespaces", null, problemNote(problem));
  if (!data?.namespaces.length) return null;
  const names = Object.keys(data.entities);
  const wanted = chosen("matrix filter", "").trim();
  const only = chosen("matrix state");
  const rows = data.namespaces
    .filter((each) => each.namespace.includes(wanted) && (!only || Object.values(each.entities).includes(only)))
    .sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state));
  const shown = chosen("matrix rows", STEP);
  return section(
    "Namespaces",
    filter(),
    problemNote(problem),
    data.notes.map(warning),
    legend(data.namespaces),
    grid(names, data, rows.slice(0, shown)),
    h("p", { class: "soft" }, `${count(Math.min(shown, rows.length))} of ${count(data.namespaces.length)} namespaces, the worst first.`),
    rows.length > shown
      ? h("p", { class: "more" }, h("button", { type: "button", onclick: () => choose("matrix rows", shown + STEP) }, "Show more"))
      : null,
  );
}

function filter() {
  const oninput = (event) => choose("matrix filter", event.target.value);
  return [
    h("label", { class: "unseen", for: "matrix-filter" }, "Namespaces that contain"),
    h("input", { id: "matrix-filter", type: "search", placeholder: "42/9970", oninput, spellcheck: "false" }),
  ];
}

/** How many cells are in each state; pressing one leaves only namespaces that have it. */
function legend(namespaces) {
  const totals = new Map();
  for (const each of namespaces)
    for (const state of Object.values(each.entities)) totals.set(state, (totals.get(state) ?? 0) + 1);
  const only = chosen("matrix state");
  return h(
    "div",
    { class: "legend", role: "group", "aria-label": "Show only namespaces with" },
    ORDER.toReversed()
      .filter((state) => totals.has(state))
      .map((state) =>
        h(
          "button",
          {
            key: state,
            type: "button",
            class: "quiet",
            "aria-pressed": String(only === state),
            onclick: () => choose("matrix state", only === state ? null : state),
          },
          chip(state),
          h("b", null, count(totals.get(state))),
        ),
      ),
  );
}

function grid(names, data, rows) {
  const head = h("tr", null, h("th", { scope: "col" }, "namespace"), names.map((name) => h("th", { scope: "col", class: "tilted" }, h("span", null, name))));
  const all = h("tr", { key: "all", class: "sum" }, h("th", { scope: "row" }, "worst of all"), names.map((name) => cell("all", name, data.entities[name])));
  const body = rows.map((row) =>
    h(
      "tr",
      { key: row.namespace },
      h("th", { scope: "row" }, h("code", null, row.namespace)),
      names.map((name) => cell(row.namespace, name, row.entities[name])),
    ),
  );
  return h(
    "div",
    { class: "scroll matrix", tabindex: "0", role: "region", "aria-label": "Status by namespace and entity" },
    h("table", null, h("caption", { class: "unseen" }, "Status by namespace and entity"), h("thead", null, head), h("tbody", null, all, body)),
  );
}

function cell(namespace, entity, state) {
  const said = h("span", { class: "unseen" }, words(state));
  const shown = [glyph(state), said];
  const title = `${entity} in ${namespace}: ${words(state)}`;
  if (namespace === "all") return h("td", { title }, shown);
  return h("td", { title }, h("a", { href: link("partitions", `${entity}@${namespace}`), tabindex: "-1" }, shown));
}
