// Search in what is served, and where each hit comes from.

import { path } from "./api.js";
import { h } from "./dom.js";
import { amount, count, exactTime, reference, shortId } from "./format.js";
import { empty, figures, loading, moment, problemNote, view } from "./pieces.js";
import { data, resource } from "./resource.js";
import { link } from "./route.js";
import { choose, chosen } from "./store.js";

const found = (query) =>
  path("/api/search", { q: query.get("q"), entity: query.get("entity"), mode: query.get("mode"), k: 20 });
const origin = (hit) => path("/api/why", { ref: hit.entity, id: hit.chunk_id });

/** An answer stands until it is asked for anew: indexes are not searched again and again. */
const ONCE = 600_000;

export function needs({ query }) {
  if (!query.get("q")) return [];
  const open = (data(found(query))?.items ?? []).filter((hit) => chosen(`why ${hit.chunk_id}`));
  return [found(query), ...open.map(origin)].map((each) => ({ path: each, every: ONCE }));
}

export function searchView({ query }) {
  const { data: answer, problem } = query.get("q") ? resource(found(query)) : { data: null, problem: null };
  return view(
    "Search",
    null,
    options(query),
    problemNote(problem),
    !query.get("q")
      ? empty("Write what you look for into the box above.")
      : answer
        ? results(answer.items)
        : problem
          ? null
          : loading(),
  );
}

function options(query) {
  const set = (name) => (event) => {
    location.hash = link("search", null, { ...Object.fromEntries(query), [name]: event.target.value });
  };
  const documents = (data("/api/project")?.entities ?? []).filter((each) => each.kind === "documents");
  const names = documents.map((each) => each.name);
  const asked = documents.filter((each) => !query.get("entity") || each.name === query.get("entity"));
  return h(
    "div",
    { class: "options" },
    option("search-mode", "by", { onchange: set("mode"), value: query.get("mode") || usual(asked) }, Object.entries(modes(asked))),
    option("search-entity", "in", { onchange: set("entity"), value: query.get("entity") ?? "" }, [
      ["", "all entities"],
      ...names.map((name) => [name, name]),
    ]),
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

function results(items) {
  if (!items.length) return empty("Nothing was found.");
  return [
    h("p", { class: "soft", role: "status" }, `${amount(items.length, "hit")}, the best first.`),
    h("ol", { class: "hits" }, items.map(hitItem)),
  ];
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
    h("p", { class: "soft uri" }, reference(hit.entity), " · ", hit.source_uri),
    h("p", { class: "snippet" }, marked(hit.snippet, hit.marks)),
    h(
      "details",
      { open: opened, ontoggle: toggle },
      h("summary", null, "Where it comes from"),
      opened ? provenance(hit) : null,
    ),
  );
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
