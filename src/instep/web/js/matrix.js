// The status matrix: a row for each namespace, a column for each entity, the worst first.

import { h } from "./dom.js";
import { count } from "./format.js";
import { empty, loading, problemNote, section, warning } from "./pieces.js";
import { link } from "./route.js";
import { chip, glyph, words } from "./states.js";
import { choose, chosen } from "./store.js";

/** From the worst to the best. */
const ORDER = ["Unknown", "NotIndexed", "Backfilling", "Error", "Indexing", "Indexed"];
/** So many namespaces are shown at first, and with each step. */
const STEP = 60;

export function matrixSection({ data, problem }) {
  if (problem && !data) return section("Namespaces", null, problemNote(problem));
  if (!data) return section("Namespaces", null, loading());
  if (!data.namespaces.length) return section("Namespaces", null, empty("No namespace is declared or known."));
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
    h(
      "p",
      { class: "soft" },
      `${count(Math.min(shown, rows.length))} of ${count(data.namespaces.length)} namespaces, the worst first.`,
    ),
    rows.length > shown
      ? h(
          "p",
          { class: "more" },
          h("button", { type: "button", onclick: () => choose("matrix rows", shown + STEP) }, "Show more"),
        )
      : null,
  );
}

function filter() {
  const oninput = (event) => choose("matrix filter", event.target.value);
  return [
    h("label", { class: "unseen", for: "matrix-filter" }, "Namespaces that contain"),
    h("input", {
      id: "matrix-filter",
      type: "search",
      placeholder: "42/9970",
      value: chosen("matrix filter", ""),
      oninput,
      spellcheck: "false",
    }),
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

/** The Tab key comes to one cell of it; from there the arrow keys lead to the others. */
function grid(names, data, rows) {
  const head = h(
    "tr",
    { role: "row" },
    h("th", { role: "columnheader", scope: "col" }, "namespace"),
    names.map((name) => h("th", { role: "columnheader", scope: "col" }, name)),
  );
  const entry = (name, state) => h("td", { role: "gridcell", title: `${name}: ${words(state)}` }, said(state));
  const all = h(
    "tr",
    { key: "all", role: "row", class: "sum" },
    h("th", { role: "rowheader", scope: "row" }, "worst of all"),
    names.map((name) => entry(name, data.entities[name])),
  );
  const known = rows.some((row) => names.some((name) => isAt(row.namespace, name)));
  const body = rows.map((row, place) =>
    h(
      "tr",
      { key: row.namespace, role: "row" },
      h("th", { role: "rowheader", scope: "row" }, h("code", null, row.namespace)),
      names.map((name, beside) =>
        cell(row.namespace, name, row.entities[name], known ? isAt(row.namespace, name) : !place && !beside),
      ),
    ),
  );
  const caption = "Status by namespace and entity";
  return h(
    "div",
    { class: "scroll matrix" },
    h(
      "table",
      { role: "grid", "aria-label": caption, onkeydown: onKey },
      h("thead", { role: "rowgroup" }, head),
      h("tbody", { role: "rowgroup" }, all, body),
    ),
  );
}

function isAt(namespace, entity) {
  return chosen("matrix cell") === `${entity}@${namespace}`;
}

function cell(namespace, entity, state, entered) {
  const ref = `${entity}@${namespace}`;
  const properties = {
    href: link("partitions", ref),
    tabindex: entered ? "0" : "-1",
    onfocus: () => isAt(namespace, entity) || choose("matrix cell", ref),
  };
  return h(
    "td",
    { role: "gridcell", title: `${entity} in ${namespace}: ${words(state)}` },
    h("a", properties, said(state)),
  );
}

function said(state) {
  return [glyph(state), h("span", { class: "unseen" }, words(state))];
}

const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function onKey(event) {
  const place = event.target.closest("td");
  if (!place || !(event.key in MOVES)) return;
  const [down, right] = MOVES[event.key];
  const row = place.closest("table").rows[place.parentElement.rowIndex + down];
  const next = row?.cells[place.cellIndex + right]?.querySelector("a");
  if (!next) return;
  event.preventDefault();
  next.focus();
}
