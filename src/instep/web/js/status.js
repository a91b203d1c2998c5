// How far everything is: each entity as a whole, and the matrix namespace × entity.

import { dependenciesSection } from "./dependencies.js";
import { h } from "./dom.js";
import { bytes, count, reference, shortId } from "./format.js";
import { failed } from "./jobs.js";
import { matrixSection } from "./matrix.js";
import { loading, moment, problemNote, section, table, view, warning } from "./pieces.js";
import { data, resource } from "./resource.js";
import { link } from "./route.js";
import { chip } from "./states.js";

const MATRIX = "/api/status/matrix";

/** Of entities that are indexed as a whole; the others are in the matrix. Null while the project is not known. */
function wholePath() {
  const names =
    data("/api/project")
      ?.entities.filter((each) => each.ref)
      .map((each) => each.name) ?? [];
  return names.length
    ? `/api/partitions?${new URLSearchParams([...names.map((name) => ["entity", name]), ["limit", "1000"]])}`
    : null;
}

function isNamespaced() {
  return data("/api/project")?.entities.some((each) => each.namespaced) ?? false;
}

export function needs() {
  const paths = [wholePath(), isNamespaced() ? MATRIX : null];
  return paths.filter(Boolean).map((path) => ({ path, every: 10_000, live: true }));
}

export function statusView() {
  if (!data("/api/project")) return view("Status", null, loading());
  const path = wholePath();
  return view(
    "Status",
    null,
    path ? whole(resource(path)) : null,
    dependenciesSection(data("/api/project").entities, path ? (data(path)?.items ?? []) : []),
    isNamespaced() ? matrixSection(resource(MATRIX)) : null,
  );
}

function whole({ data: found, problem }) {
  return [problemNote(problem), found ? entities(found.items) : problem ? null : loading()];
}

function entities(items) {
  if (!items.length) return null;
  const numbers = ["documents", "rows", "size", "failed"].map((name) => ({ name, number: true }));
  const rows = items.map((each) => ({
    key: `${each.ref} ${each.generation}`,
    cells: [
      h("a", { href: link("partitions", each.ref) }, reference(each.ref, each.generation)),
      chip(each.state),
      count(each.documents),
      count(each.rows),
      bytes(each.bytes),
      each.failures
        ? h("a", { href: link("failures", null, { entity: each.ref.split("@")[0] }) }, failed(each.failures))
        : count(0),
      each.watermark ? moment(each.watermark) : "–",
      each.job
        ? [
            h("a", { href: link("jobs", each.job.id) }, h("code", null, shortId(each.job.id))),
            " ",
            chip(each.job.state),
          ]
        : "–",
    ],
  }));
  const notes = items.flatMap((each) =>
    each.notes.map((note) => warning(`${reference(each.ref, each.generation)}: ${note}`)),
  );
  return section(
    "Entities",
    null,
    table("Entities", ["entity", "state", ...numbers, "as of", "last job"], rows),
    notes,
  );
}
