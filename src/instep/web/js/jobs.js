// All jobs: what runs now, and what ran before.

import { h } from "./dom.js";
import { count, duration, reference, shortId } from "./format.js";
import { jobActions } from "./job_actions.js";
import { moreButton, pagePaths, pages } from "./pages.js";
import { empty, loading, moment, problemNote, progress, section, table, view } from "./pieces.js";
import { hasEnded, progressLine, progressOf, progressText } from "./progress.js";
import { data } from "./resource.js";
import { link } from "./route.js";
import { runButton } from "./run.js";
import { chip, look } from "./states.js";
import { slicesText, strip } from "./strip.js";

const PATH = "/api/jobs?limit=25";

export function needs() {
  return pagePaths(PATH).map((path, place) => ({ path, every: 15_000, live: place === 0 }));
}

export function jobsView() {
  const found = pages(PATH);
  if (!found.loaded) return view("Jobs", runButton(), found.problem ? problemNote(found.problem) : loading());
  const seen = found.items.map((job) => [job, progressOf(job)]);
  const open = seen.filter(([, { state }]) => !hasEnded(state));
  const ended = seen.filter(([, { state }]) => hasEnded(state));
  const first = !found.items.length && !found.problem ? firstSteps() : [running(open), earlier(ended)];
  return view("Jobs", runButton(), problemNote(found.problem), first, moreButton(PATH, found));
}

/** What to do in a project in which nothing has run yet. */
function firstSteps() {
  const steps = [
    ["instep check", "tries source, target and embedder of each entity, and says what is missing"],
    ["instep plan", "says what a run would do, and writes nothing"],
    ["instep run", "builds the indexes; it can be watched here, and Run… asks a worker for the same"],
    ['instep search "some words"', "finds what was indexed; so does the box above"],
    ["instep worker", "keeps indexes up to date, and does what this page asks for"],
  ];
  const names = (data("/api/project")?.entities ?? []).map((each) => each.name);
  return section(
    "First steps",
    null,
    h(
      "p",
      null,
      names.length ? `Nothing has run yet. Declared in instep.yaml: ${names.join(", ")}.` : "Nothing has run yet.",
      " In a terminal, in the folder of the project:",
    ),
    h(
      "ol",
      { class: "steps" },
      steps.map(([command, what]) => h("li", { key: command }, h("code", null, command), " ", what)),
    ),
  );
}

function running(open) {
  if (!open.length) return section("Now", null, empty("Nothing runs."));
  return section(
    "Now",
    null,
    h(
      "ul",
      { class: "cards" },
      open.map(([job, how]) => h("li", { key: job.id }, card(job, how))),
    ),
  );
}

function card(job, how) {
  return h(
    "article",
    { class: "card", "aria-label": `Job ${shortId(job.id)}` },
    h(
      "div",
      { class: "head" },
      h("h3", null, h("a", { href: link("jobs", job.id) }, refsText(job)), " ", h("code", null, shortId(job.id))),
      h("div", { class: "aside" }, chip(how.state), jobActions(job, how.state)),
    ),
    progress(`Job ${shortId(job.id)}`, how.share, progressText(how), look(how.state)),
    progressLine(how),
    h(
      "p",
      { class: "soft" },
      waits(job, how) ?? [slicesText(how.slices), " · began ", moment(job.started_at ?? job.created_at)],
    ),
    errorNote(job, how),
  );
}

/** Why a job failed; that one was stopped, and why, is no error. */
export function errorNote(job, how) {
  if (!job.error) return null;
  return ["STOPPING", "STOPPED"].includes(how.state)
    ? h("p", { class: "soft" }, job.error)
    : h("p", { class: "error" }, job.error);
}

/** What a job without workers waits for. */
export function waits(job, how) {
  if (job.workers.length || !["READY", "RUNNING"].includes(how.state)) return null;
  return "It waits for a worker: start one with instep worker.";
}

function earlier(ended) {
  if (!ended.length) return section("Before", null, empty("No job has ended yet."));
  const columns = [
    "job",
    "state",
    "entities",
    "slices",
    { name: "done", number: true },
    { name: "failed", number: true },
    { name: "time", number: true },
    "ended",
  ];
  const rows = ended.map(([job, how]) => ({
    key: job.id,
    cells: [
      h("a", { href: link("jobs", job.id) }, h("code", null, shortId(job.id))),
      chip(how.state),
      refsText(job),
      strip(how.slices),
      count(how.done),
      failed(how.failed, job.id),
      duration(job.duration_seconds),
      moment(job.finished_at),
    ],
  }));
  return section("Before", null, table("Jobs that ended", columns, rows));
}

/** So many failed; those of a job lead to them. */
export function failed(number, job) {
  if (!number) return count(number);
  const shown = h("strong", { class: "bad" }, count(number));
  return job ? h("a", { href: link("failures", null, { job }), "aria-label": `${count(number)} failed` }, shown) : shown;
}

const NAMED = 3;

/** `Document, Commit`, `Document +4`. */
export function refsText(job) {
  const names = [...new Set(job.parts.map((part) => reference(part.ref, part.generation)))];
  if (!names.length) return "nothing planned yet";
  return names.length > NAMED ? `${names[0]} +${names.length - 1}` : names.join(", ");
}
