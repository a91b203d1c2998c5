// What could not be indexed: which, at what stage, why; and trying it again.

import { act, isBusy } from "./act.js";
import { h } from "./dom.js";
import { amount, count, reference, shortId } from "./format.js";
import { moreButton, pagePaths, pages } from "./pages.js";
import { action, empty, loading, moment, problemNote, section, table, view } from "./pieces.js";
import { path } from "./api.js";
import { data } from "./resource.js";
import { link } from "./route.js";

const FILTERS = ["entity", "job", "stage", "reason"];
const filterOf = (query) => Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]));
const first = (query) => path("/api/failures", { ...filterOf(query), limit: 50 });
const groupsPath = (query) =>
  path("/api/failures/groups", { entity: query.get("entity"), job: query.get("job"), limit: 50 });
/** The stage of what is left out because the project says so (`on_oversize: skip`): listed, and no failure. */
const SKIPPED = "skipped";
const sum = (groups) => groups.reduce((all, each) => all + each.number, 0);
/** Whether one group is looked at, and not all of them. */
const isOne = (query) => query.has("reason");

export function needs({ query }) {
  const lists = isOne(query) ? [first(query)] : [groupsPath(query), first(query)];
  return lists
    .flatMap(pagePaths)
    .map((each) => ({ path: each, every: 10_000, live: lists.includes(each) }));
}

export function failuresView({ query }) {
  const { entity, job, reason } = filterOf(query);
  const found = pages(first(query));
  return view(
    "Failures",
    [choice(entity, job), found.items.length ? retry(entity) : null],
    job ? h("p", { class: "lead" }, "Those that job ", h("code", null, shortId(job)), " met last. ", all(entity)) : null,
    isOne(query) ? h("p", { class: "lead" }, reason, " ", all(entity, job)) : groups(query),
    problemNote(found.problem),
    found.loaded ? list(found.items, isOne(query)) : found.problem ? null : loading(),
    moreButton(first(query), found),
  );
}

function all(entity, job) {
  return h("a", { href: link("failures", null, { entity, job }) }, job ? "All of the job" : "All failures");
}

function groups(query) {
  const found = pages(groupsPath(query));
  if (!found.items.length) return problemNote(found.problem);
  const { job } = filterOf(query);
  const rows = found.items.map((each) => ({
    key: `${each.ref} ${each.generation} ${each.stage} ${each.reason}`,
    cells: [
      h(
        "a",
        {
          class: "reason",
          href: link("failures", null, { entity: each.ref, job, stage: each.stage, reason: each.reason }),
        },
        each.reason,
      ),
      each.stage,
      reference(each.ref, each.generation),
      count(each.number),
      moment(each.failed_at),
    ],
  }));
  const left = sum(found.items.filter((each) => each.stage === SKIPPED));
  const total = [amount(sum(found.items) - left, "failure"), left ? `${count(left)} left out on purpose` : null];
  const columns = ["reason", "stage", "entity", { name: "documents", number: true }, "last"];
  return section(
    "By reason",
    h("span", { class: "soft" }, `${total.filter(Boolean).join(", ")}${found.more ? " in the groups shown" : ""}`),
    table("Failures by reason", columns, rows),
    moreButton(groupsPath(query), found),
  );
}

function choice(entity, job) {
  const names = (data("/api/project")?.entities ?? []).map((each) => each.name);
  const onchange = (event) => void (location.hash = link("failures", null, { entity: event.target.value, job }));
  return [
    h("label", { class: "unseen", for: "failures-entity" }, "Entity"),
    h(
      "select",
      { id: "failures-entity", onchange, value: entity ?? "" },
      h("option", { value: "" }, "all entities"),
      entity && !names.includes(entity) ? h("option", { value: entity }, reference(entity)) : null,
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

function list(items, isGroup) {
  if (!items.length) return empty(isGroup ? "Nothing fails for this reason any more." : "Nothing has failed.");
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
      `${count(items.length)} shown, the newest first. They are tried again when their source changes.`,
    ),
    table("Failures", columns, rows),
  ];
}
