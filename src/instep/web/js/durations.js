// How long the jobs of a partition took: a bar for each, the newest on the right.

import { h, svg } from "./dom.js";
import { clockText, count, dayText, duration, shortId } from "./format.js";
import { failed } from "./jobs.js";
import { moment, problemNote, section, table } from "./pieces.js";
import { resource } from "./resource.js";
import { link } from "./route.js";
import { chip, look, words } from "./states.js";
import { path } from "./api.js";

/** So many jobs are shown. */
const SHOWN = 30;
const STEP = 22;
const HEIGHT = 96;
const LEAST = 3;

export const durationsPath = (ref) => path("/api/jobs", { entity: ref, limit: SHOWN });

export function durationsSection(ref) {
  const { data, problem } = resource(durationsPath(ref));
  const jobs = (data?.items ?? []).filter((each) => each.duration_seconds !== null);
  if (!jobs.length) return problemNote(problem);
  return section("Jobs", null, problemNote(problem), bars(jobs.toReversed()), list(jobs));
}

function bars(jobs) {
  const longest = Math.max(0.001, ...jobs.map((each) => each.duration_seconds));
  const width = jobs.length * STEP;
  return h(
    "div",
    { class: "scroll chart", tabindex: "0", role: "region", "aria-label": "Durations of jobs" },
    h("p", { class: "soft" }, `The longest took ${duration(longest)}.`),
    svg(
      "svg",
      { class: "bars", width, height: HEIGHT + 2, viewBox: `0 0 ${width} ${HEIGHT + 2}`, role: "group", "aria-label": "Durations" },
      jobs.map((each, place) => bar(each, place * STEP, (each.duration_seconds / longest) * HEIGHT)),
      svg("path", { key: "ground", class: "ground", d: `M0 ${HEIGHT + 0.5}H${width}` }),
    ),
  );
}

function bar(job, x, full) {
  const height = Math.max(LEAST, full);
  const at = job.started_at ?? job.created_at;
  const said = `${dayText(at)} ${clockText(at)}: ${duration(job.duration_seconds)}, ${words(job.state)}`;
  return svg(
    "a",
    { key: job.id, href: link("jobs", job.id), "aria-label": `Job ${shortId(job.id)}, ${said}` },
    svg("title", null, said),
    svg("rect", { class: `fill-${look(job.state)}`, x: x + 1, y: HEIGHT - height, width: STEP - 3, height }),
    svg("rect", { class: "clear", x, y: 0, width: STEP, height: HEIGHT }),
  );
}

function list(jobs) {
  const numbers = ["time", "done", "failed"].map((name) => ({ name, number: true }));
  const rows = jobs.map((job) => ({
    key: job.id,
    cells: [
      h("a", { href: link("jobs", job.id) }, h("code", null, shortId(job.id))),
      chip(job.state),
      duration(job.duration_seconds),
      count(job.done),
      failed(job.counts.failed, job.id),
      moment(job.finished_at),
    ],
  }));
  return h(
    "details",
    null,
    h("summary", null, "The numbers"),
    table("Jobs of this entity", ["job", "state", ...numbers, "ended"], rows),
  );
}
