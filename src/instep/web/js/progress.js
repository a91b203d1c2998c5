// How far a job is: what was read of it, with what the live channel has said since.

import { h } from "./dom.js";
import { amount, count, duration, percent, rate } from "./format.js";
import { data } from "./resource.js";
import { SLICE_STATES } from "./states.js";
import { state } from "./store.js";

const ENDED = new Set(["COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "STOPPED"]);

export function hasEnded(jobState) {
  return ENDED.has(jobState);
}

/** `{state, units, done, failed, rate, left, slices, share}` of a job as `/api/jobs` has it. */
export function progressOf(job) {
  const live = state.live.get(job.id);
  const known = live && live.at > job.seen_at ? fromLive(job, live) : fromRead(job);
  return { ...known, share: shareOf(known), unit: unitOf(job) };
}

function fromRead(job) {
  const { state: name, units, done, counts, units_per_second: speed, seconds_left: left, slices } = job;
  return { state: name, units, done, failed: counts.failed, rate: speed, left, slices };
}

function fromLive(job, live) {
  const { totalRecords, successRecords, failedRecords } = live.stats.jobStats;
  return {
    state: live.status,
    units: job.units === null ? null : totalRecords,
    done: successRecords + failedRecords,
    failed: failedRecords,
    rate: live.rate,
    left: live.secondsLeft,
    slices: live.slices,
  };
}

/** By units where they were counted, else by slices; null when neither says anything. */
function shareOf({ state: name, units, done, slices }) {
  if (name === "COMPLETED" || name === "COMPLETED_WITH_ERRORS") return 1;
  if (units) return done / units;
  const total = sliceCount(slices);
  return total ? (total - slices.PENDING - slices.PROCESSING) / total : null;
}

export function sliceCount(slices) {
  return SLICE_STATES.reduce((sum, each) => sum + (slices[each] ?? 0), 0);
}

/** What the job's units are: documents, rows of tables, or both. */
function unitOf(job) {
  const kinds = new Map((data("/api/project")?.entities ?? []).map((each) => [each.name, each.kind]));
  const found = new Set(job.parts.map((part) => kinds.get(part.ref.split("@")[0].split("[")[0])));
  if (found.size !== 1) return "unit";
  return found.has("documents") ? "document" : found.has("table") ? "row" : "unit";
}

/** `45,000 of 100,000 documents`. */
function doneText({ done, units, unit }) {
  return units === null ? amount(done, unit) : `${count(done)} of ${amount(units, unit)}`;
}

/** `45 %, 45,000 of 100,000 documents, 12,300/s, about 4 s left`. */
export function progressText(progress) {
  return [progress.share === null ? null : percent(progress.share), ...restOf(progress)].filter(Boolean).join(", ");
}

/** The same to be seen: the share first, and larger. */
export function progressLine(progress) {
  const rest = restOf(progress).filter(Boolean).join(" · ");
  if (progress.share === null && !rest) return h("p", { class: "figure-line" }, "It is being planned.");
  const share = progress.share === null ? null : [h("strong", null, percent(progress.share)), " "];
  return h("p", { class: "figure-line" }, share, rest);
}

function restOf(progress) {
  return [
    progress.units === 0 ? null : doneText(progress),
    progress.rate === null ? null : rate(progress.rate),
    progress.left === null ? null : `about ${duration(progress.left)} left`,
    progress.failed ? `${count(progress.failed)} failed` : null,
  ];
}
