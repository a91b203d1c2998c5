// What could not be indexed: which, at what stage, why; and trying it again.

import { act, isBusy } from "./act.js";
import { h } from "./dom.js";
import { amount, count, reference, shortId } from "./format.js";
import { moreButton, pagePaths, pages } from "./pages.js";
import { action, empty, loading, moment, problemNote, table, view } from "./pieces.js";
import { path } from "./api.js";
import { data } from "./resource.js";
import { link } from "./route.js";

const first = (query) => path("/api/failures", { entity: query.get("entity"), limit: 50 });

export function needs({ query }) {
  return pagePaths(first(query)).map((each, place) => ({ path: each, every: 10_000, live: place === 0 }));
}

export function failuresView({ query }) {
  const entity = query.get("entity");
  const found = pages(first(query));
  return view(
    "Failures",
    [choice(entity), found.items.length ? retry(entity) : null],
    problemNote(found.problem),
    found.loaded ? list(found.items) : found.problem ? null : loading(),
    moreButton(first(query), found),
  );
}

function choice(entity) {
  const names = (data("/api/project")?.entities ?? []).map((each) => each.name);
  const onchange = (event) => void (location.hash = link("failures", null, { entity: event.target.value }));
  return [
    h("label", { class: "unseen", for: "failures-entity" }, "Entity"),
    h(
      "select",
      { id: "failures-entity", onchange, value: entity ?? "" },
      h("option", { value: "" }, "all entities"),
      names.map((name) => h("option", { key: name, value: name }, name)),
    ),
  ];
}

/** Of one entity, or of all. */
function retry(entity) {
  const body = { entities: entity ? [entity] : [] };
  const said = (answer) => {
    if (answer.job) location.hash = link("jobs", answer.job);
    return "What failed is tried again.";
  };
  const ask = () => act("retry failures", "/api/failures/retry", body, said);
  return action(entity ? `Retry ${entity}` : "Retry all", isBusy("retry failures"), ask, "primary");
}

function list(items) {
  if (!items.length) return empty("Nothing has failed.");
  const columns = ["document", "entity", "stage", "reason", { name: "tries", number: true }, "last"];
  const rows = items.map((each) => ({
    key: `${each.ref} ${each.generation} ${each.document_id}`,
    cells: [
      h("span", { class: "uri", title: each.document_id }, each.uri || each.document_id),
      h("a", { href: link("partitions", each.ref) }, reference(each.ref, each.generation)),
      each.stage,
      h("span", { class: "reason" }, each.reason),
      count(each.attempts),
      [
        moment(each.failed_at),
        " ",
        h(
          "a",
          { href: link("jobs", each.job_id), title: "The job that met it" },
          h("code", null, shortId(each.job_id)),
        ),
      ],
    ],
  }));
  return [
    h(
      "p",
      { class: "soft" },
      `${amount(items.length, "failure")} shown, the newest first. They are tried again when their source changes.`,
    ),
    table("Failures", columns, rows),
  ];
}
