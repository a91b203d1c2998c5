// How far everything is: each entity as a whole, and the matrix namespace × entity.

import { h } from "./dom.js";
import { bytes, count, exactTime, reference, shortId } from "./format.js";
import { failed } from "./jobs.js";
import { matrixSection } from "./matrix.js";
import { empty, moment, problemNote, loading, section, table, view, warning } from "./pieces.js";
import { resource } from "./resource.js";
import { link } from "./route.js";
import { chip } from "./states.js";

const PARTITIONS = "/api/partitions";
const MATRIX = "/api/status/matrix";

export function needs() {
  return [PARTITIONS, MATRIX].map((path) => ({ path, every: 10_000, live: true }));
}

export function statusView() {
  const { data, problem } = resource(PARTITIONS);
  const matrix = resource(MATRIX);
  return view(
    "Status",
    null,
    problemNote(problem),
    data ? entities(data.items) : problem ? null : loading(),
    matrixSection(matrix),
  );
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
      failed(each.failures),
      each.watermark ? moment(each.watermark) : "–",
      each.job ? [h("a", { href: link("jobs", each.job.id) }, h("code", null, shortId(each.job.id))), " ", chip(each.job.state)] : "–",
    ],
  }));
  const notes = items.flatMap((each) => each.notes.map((note) => warning(`${reference(each.ref, each.generation)}: ${note}`)));
  return section("Entities", null, table("Entities", ["entity", "state", ...numbers, "as of", "last job"], rows), notes);
}
