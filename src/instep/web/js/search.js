// Search in what is served, and where each hit comes from.

import { path } from "./api.js";
import { h } from "./dom.js";
import { filterBox, valuesNeeded } from "./filter_box.js";
import { condition, has, toggled } from "./filter_text.js";
import { amount, count, exactTime, reference, shortId } from "./format.js";
import { empty, figures, loading, moment, problemNote, view } from "./pieces.js";
import { data, resource } from "./resource.js";
import { link } from "./route.js";
import { choose, chosen } from "./store.js";

/** So many columns are counted beside the hits, with so many values each. */
const FACETS = 5;
const VALUES = 8;
const PROJECT = "/api/project";

const searching = (query, facets) =>
  path("/api/search", {
    q: query.get("q"),
    entity: query.get("entity"),
    mode: query.get("mode"),
    where: query.get("where"),
    group: query.get("group"),
    k: 20,
    facet: facets,
    facet_values: facets.length ? VALUES : null,
  });
const origin = (hit) => path("/api/why", { ref: hit.entity, id: hit.chunk_id });

/** An answer stands until it is asked for anew: indexes are not searched again and again. */
const ONCE = 600_000;

/** Entities that are looked through. */
function entities(query) {
  const all = (data(PROJECT)?.entities ?? []).filter((each) => each.kind === "documents");
  return query.get("entity") ? all.filter((each) => each.name === query.get("entity")) : all;
}

/** Columns that all of these entities have, which a filter may name. */
function columns(query) {
  const [first, ...rest] = entities(query);
  const also = ({ name, type }) =>
    rest.every((each) => each.columns.some((other) => other.name === name && other.type === type));
  return (first?.columns ?? []).filter(also);
}

/** `{data, problem}` of the search. Of an index that has not got the columns yet that are declared, nothing is counted. */
function answered(query) {
  const [counted, plain] = searches(query);
  const found = resource(counted);
  return found.problem?.status === 409 ? { ...resource(plain), uncounted: true } : found;
}

function searches(query) {
  const facets = columns(query)
    .filter((each) => each.counted)
    .slice(0, FACETS)
    .map((each) => each.name);
  return [searching(query, facets), searching(query, [])];
}

export function needs({ query }) {
  // Which columns there are is known first: else all would be asked twice.
  const { data: project, problem } = resource(PROJECT);
  if (!project && !problem) return [];
  const values = valuesNeeded(columns(query), query.get("entity"));
  const wanted = values ? [values] : [];
  if (query.get("q")) {
    const [counted, plain] = searches(query);
    wanted.push(counted);
    if (resource(counted).problem?.status === 409) wanted.push(plain);
    const open = (answered(query).data?.items ?? []).filter((hit) => chosen(`why ${hit.chunk_id}`));
    wanted.push(...open.map(origin));
  }
  return wanted.map((each) => ({ path: each, every: ONCE }));
}

/** To the same search with something else about it. */
function go(query, changed) {
  location.hash = link("search", null, { ...Object.fromEntries(query), ...changed });
}

export function searchView({ query }) {
  const { data: answer, problem } = query.get("q") ? answered(query) : { data: null, problem: null };
  return view(
    "Search",
    null,
    options(query),
    filterBox({
      where: query.get("where") ?? "",
      columns: columns(query),
      entity: query.get("entity"),
      apply: (where) => go(query, { where }),
    }),
    problemNote(problem),
    wrongPlace(query.get("where"), problem?.position),
    !query.get("q")
      ? empty("Write what you look for into the box above.")
      : problem
        ? null
        : answer
          ? results(query, answer)
          : loading(),
  );
}

/** The filter, with the character marked at which it is wrong. */
function wrongPlace(where, position) {
  if (!where || !position) return null;
  const letters = [...where];
  const at = Math.min(position, letters.length + 1) - 1;
  return h(
    "p",
    { class: "uri" },
    h(
      "code",
      null,
      letters.slice(0, at).join(""),
      h("mark", null, letters[at] ?? " "),
      letters.slice(at + 1).join(""),
    ),
  );
}

function options(query) {
  const set = (name) => (event) => go(query, { [name]: event.target.value });
  const names = (data(PROJECT)?.entities ?? []).filter((each) => each.kind === "documents").map((each) => each.name);
  const asked = entities(query);
  const only = { onchange: (event) => go(query, { group: event.target.checked ? "true" : "" }) };
  return h(
    "div",
    { class: "options" },
    option(
      "search-mode",
      "by",
      { onchange: set("mode"), value: query.get("mode") || usual(asked) },
      Object.entries(modes(asked)),
    ),
    option("search-entity", "in", { onchange: set("entity"), value: query.get("entity") ?? "" }, [
      ["", "all entities"],
      ...names.map((name) => [name, name]),
    ]),
    h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", ...only, drawn: (box) => (box.checked = Boolean(query.get("group"))) }),
      "one hit per document",
    ),
  );
}

/** What the modes look for, in words that promise no more than the vectors of these entities know. */
function modes(entities) {
  const vectors = entities.some((each) => each.meaning) ? "meaning" : "hashed words";
  const named = { hybrid: `words and ${vectors}`, text: "words", vector: vectors };
  return usual(entities) ? named : { "": "what suits each entity", ...named };
}

/** The mode in which these entities are searched unless told; "" where each has its own. */
function usual(entities) {
  const found = new Set(entities.map((each) => each.search_mode));
  return found.size === 1 ? [...found][0] : "";
}

function option(id, label, properties, values) {
  const options = values.map(([value, text]) => h("option", { key: value, value }, text));
  return h("span", null, h("label", { for: id }, label, " "), h("select", { id, ...properties }, options));
}

function results(query, { items, facets }) {
  const counted = columns(query).filter((each) => facets?.[each.name]?.length);
  const hits = items.length
    ? [
        h("p", { class: "soft", role: "status" }, `${amount(items.length, "hit")}, the best first.`),
        h("ol", { class: "hits" }, items.map(hitItem)),
      ]
    : empty("Nothing was found.");
  if (!counted.length) return hits;
  return h(
    "div",
    { class: "beside" },
    h("div", null, hits),
    h(
      "section",
      { class: "facets", "aria-label": "Narrow by" },
      counted.map((column) => facet(query, column, facets[column.name])),
    ),
  );
}

function facet(query, column, counts) {
  const where = query.get("where") ?? "";
  const button = ({ value, count: many }) => {
    const one = condition(column, value);
    const narrow = () => go(query, { where: toggled(where, one) });
    return h(
      "li",
      { key: String(value) },
      h(
        "button",
        { type: "button", class: "quiet", "aria-pressed": String(has(where, one)), onclick: narrow },
        h("span", { class: "uri" }, String(value)),
        h("span", { class: "soft" }, " ", count(many)),
      ),
    );
  };
  return h("div", { key: column.name }, h("h2", null, column.name), h("ul", null, counts.map(button)));
}

function hitItem(hit) {
  const name = `why ${hit.chunk_id}`;
  const opened = Boolean(chosen(name));
  const toggle = (event) => {
    if (event.target.open !== opened) choose(name, event.target.open);
  };
  return h(
    "li",
    { key: hit.chunk_id },
    h("h2", { class: "uri" }, hit.title || tail(hit.source_uri)),
    h("p", { class: "soft uri" }, reference(hit.entity), " · ", hit.source_uri, hit.weak ? " · weak match" : null),
    hasColumns(hit) ? h("p", { class: "soft" }, columnsOf(hit)) : null,
    h("p", { class: "snippet" }, marked(hit.snippet, hit.marks)),
    h(
      "details",
      { open: opened, ontoggle: toggle },
      h("summary", null, "Where it comes from"),
      opened ? provenance(hit) : null,
    ),
  );
}

function hasColumns(hit) {
  return Object.values(hit.columns).some((value) => value !== null);
}

function columnsOf(hit) {
  const told = Object.entries(hit.columns).filter(([, value]) => value !== null);
  return told.map(([name, value]) => `${name} ${[value].flat().join(", ")}`).join(" · ");
}

function tail(uri) {
  return uri.split("/").at(-1) || uri;
}

/** The snippet with what answers the query marked; `marks` count code points. */
function marked(snippet, marks) {
  const letters = [...snippet];
  const parts = [];
  let place = 0;
  for (const [from, to] of marks) {
    parts.push(letters.slice(place, from).join(""), h("mark", null, letters.slice(from, to).join("")));
    place = to;
  }
  return [...parts, letters.slice(place).join("")];
}

function provenance(hit) {
  const { data: why, problem } = resource(origin(hit));
  if (!why) return problem ? problemNote(problem) : loading();
  const { instance, job } = why;
  return figures([
    ["target", why.target],
    ["index", h("code", null, why.physical)],
    instance
      ? ["instance", h("a", { href: link("partitions", instance.ref) }, h("code", null, shortId(instance.uuid)))]
      : null,
    instance ? ["made for", instance.reason] : null,
    job ? ["job", h("a", { href: link("jobs", job.id) }, h("code", null, shortId(job.id)))] : null,
    why.window
      ? ["complete up to", h("span", { title: exactTime(why.window.target) }, moment(why.window.target))]
      : null,
    ["wants", count(why.wants.length)],
    ["chunk", h("code", null, shortId(hit.chunk_id))],
  ]);
}
