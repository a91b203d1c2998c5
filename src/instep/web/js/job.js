// One job: how far it is, its slices, what it does for each entity, and who works on it.

import { h } from "./dom.js";
import { bytes, count, duration, percent, rate, reference, shortId } from "./format.js";
import { jobActions } from "./job_actions.js";
import { logNeeds, logSection } from "./job_log.js";
import { errorNote, failed, refsText, waits } from "./jobs.js";
import { empty, figures, loading, moment, problemNote, progress, section, table, view, warning } from "./pieces.js";
import { leftText, phaseText, progressOf, progressText } from "./progress.js";
import { resource } from "./resource.js";
import { link } from "./route.js";
import { slicesNeeds, slicesSection } from "./slices.js";
import { chip, look } from "./states.js";
import { workersTable } from "./workers.js";

const pathOf = (id) => `/api/jobs/${encodeURIComponent(id)}`;

export function needs({ argument }) {
  return [
    { path: pathOf(argument), every: 15_000, live: true },
    ...logNeeds(argument),
    ...slicesNeeds(argument, resource(pathOf(argument)).data),
  ];
}

export function jobView({ argument }) {
  const { data: job, problem } = resource(pathOf(argument));
  const title = ["Job ", h("code", null, shortId(argument))];
  if (!job) return view(title, null, problem ? problemNote(problem) : loading());
  const how = progressOf(job);
  return view(
    title,
    [chip(how.state), jobActions(job, how.state)],
    problemNote(problem),
    h("p", { class: "lead" }, refsText(job)),
    progress(`Job ${shortId(job.id)}`, how.share, progressText(how), look(how.state)),
    phaseText(how) ? h("p", { class: "figure-line" }, "Now: ", h("strong", null, phaseText(how))) : null,
    figuresOf(job, how),
    waits(job, how) ? warning(waits(job, how)) : null,
    errorNote(job, how),
    slicesSection(job, how),
    partsSection(job),
    logSection(job.id),
    job.workers.length ? section("Workers", null, workersTable(job.workers)) : null,
    configuration(job),
  );
}

function figuresOf(job, how) {
  return figures([
    ["done", how.share === null ? "–" : percent(how.share)],
    [`${how.unit}s`, how.units === null ? count(how.done) : `${count(how.done)} / ${count(how.units)}`],
    how.rate === null ? null : ["rate", rate(how.rate)],
    how.left === null ? null : ["left", leftText(how.left).replace(" left", "")],
    ["failed", failed(how.failed, job.id)],
    ["rows written", count(job.counts.rows_written)],
    job.counts.bytes_read ? ["read", bytes(job.counts.bytes_read)] : null,
    ["time", duration(job.duration_seconds)],
    [job.finished_at ? "ended" : "began", moment(job.finished_at ?? job.started_at ?? job.created_at)],
  ]);
}

function partsSection(job) {
  if (!job.parts.length) return section("Entities", null, empty("They are being planned."));
  const numbers = ["planned", "written", "same", "deleted", "failed", "rows"].map((name) => ({ name, number: true }));
  const rows = job.parts.map((part) => ({
    key: `${part.ref} ${part.generation}`,
    cells: [
      h("a", { href: link("partitions", part.ref) }, reference(part.ref, part.generation)),
      chip(part.state ?? "RUNNING", part.state ? undefined : (phaseText(part) ?? "open")),
      count(part.units),
      count(part.counts.written),
      count(part.counts.skipped),
      count(part.counts.deleted),
      failed(part.counts.failed, job.id),
      count(part.counts.rows_written),
      part.error ?? "",
    ],
  }));
  return section(
    "Entities",
    null,
    table("What the job does for each entity", ["entity", "state", ...numbers, ""], rows),
  );
}

function configuration(job) {
  const asked = Object.entries(job.configuration).filter(
    ([, value]) => value !== null && value !== false && value !== "",
  );
  return section(
    "Asked for",
    null,
    figures([
      ["id", h("code", null, job.id)],
      ["planned by", h("code", null, shortId(job.made_by))],
      ...asked.map(([name, value]) => [name, plain(value)]),
    ]),
  );
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(", ") || "–";
  if (value === true) return "yes";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
