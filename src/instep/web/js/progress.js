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

const PHASES = {
  listing: "listing the source",
  waiting: "waiting for a worker",
  waves: "reading and writing in waves",
  indexes: "bringing indexes up to date",
  checks: "checking what was built",
  promotion: "promotion: readers get what was built",
};
/** After the last wave: how long these take is not known. */
const FINISHING = new Set(["indexes", "checks", "promotion"]);

/** What a job does now, in words; null when it has ended or is to stop. */
export function phaseText({ phase }) {
  return PHASES[phase] ?? null;
}

/** `{state, phase, units, done, failed, rate, left, slices, share}` of a job as `/api/jobs` has it. */
export function progressOf(job) {
  const live = state.live.get(job.id);
  const known = live && live.at > job.seen_at ? fromLive(job, live) : fromRead(job);
  return { ...known, share: shareOf(known), unit: unitOf(job) };
}

function fromRead(job) {
  const { state: name, phase, units, done, counts, units_per_second: speed, seconds_left: left, slices } = job;
  return { state: name, phase, units, done, failed: counts.failed, rate: speed, left, slices };
}

function fromLive(job, live) {
  const { totalRecords, successRecords, failedRecords } = live.stats.jobStats;
  return {
    state: live.status,
    phase: live.phase,
    units: job.units === null ? null : totalRecords,
    done: successRecords + failedRecords,
    failed: failedRecords,
    rate: live.rate,
    left: live.secondsLeft,
    slices: live.slices,
  };
}

/** What is read is not yet written: a job that has not ended is never done. */
const MOST = 0.99;

/** By units where they were counted, else by slices; null when neither says anything, and after the last wave. */
function shareOf(known) {
  if (known.state === "COMPLETED" || known.state === "COMPLETED_WITH_ERRORS") return 1;
  if (FINISHING.has(known.phase)) return null;
  const share = countedShare(known);
  return share === null || hasEnded(known.state) ? share : Math.min(MOST, share);
}

function countedShare({ units, done, slices }) {
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

/** `reading and writing in waves, 45 %, 45,000 of 100,000 documents, 12,300/s, about 4 s left`. */
export function progressText(progress) {
  const share = progress.share === null ? null : percent(progress.share);
  return [phaseText(progress), share, ...restOf(progress)].filter(Boolean).join(", ");
}

/** The same to be seen: the share first, and larger. */
export function progressLine(progress) {
  const rest = [phaseText(progress), ...restOf(progress)].filter(Boolean).join(" · ");
  const share = progress.share === null ? null : [h("strong", null, percent(progress.share)), " "];
  return h("p", { class: "figure-line" }, share, rest);
}

export function leftText(seconds) {
  return seconds < 1 ? "under 1 s left" : `about ${duration(seconds)} left`;
}

function restOf(progress) {
  return [
    progress.phase === "listing" || progress.units === 0 ? null : doneText(progress),
    FINISHING.has(progress.phase) || progress.rate === null ? null : rate(progress.rate),
    progress.left === null ? null : leftText(progress.left),
    progress.failed ? `${count(progress.failed)} failed` : null,
  ];
}
