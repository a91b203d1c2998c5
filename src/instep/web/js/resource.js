// What views need of the server: read when it is first asked for, and again when it is old. A view says which paths
// it needs and how fresh; nothing else is read, and nothing at all while the page is hidden.

import { get } from "./api.js";
import { change, state } from "./store.js";

/** Without the live channel, what follows jobs is read so often. */
const POLL_MS = 2_500;
/** What could not be read is tried again after so long; what the server says is not there, later. */
const AGAIN_MS = 2_000;
const REFUSED_MS = 30_000;
/** What took long to be read rests for so many times as long: a job of 50,000 slices must not keep the server busy. */
const REST = 5;
/** So many paths are kept. */
const KEPT = 200;

const UNREAD = { data: null, problem: null, at: 0, took: 0 };

let needs = [];
let returned = () => {};
const reading = new Set();
/** Paths that were asked for while they were read: the answer may be older than the question. */
const again = new Set();
/** Paths whose content has changed since it was read. */
const stale = new Set();

/** `how` is called when the server answers again. */
export function onReturn(how) {
  returned = how;
}

/** `{data, problem, at, took}` of a path; `data` is the last that was read, even when it could not be read since. */
export function resource(path) {
  return state.read.get(path) ?? UNREAD;
}

export function data(path) {
  return resource(path).data;
}

/** `[{path, every, live}]`: to be read every so many milliseconds, and (`live`) with every message of a job. */
export function need(wanted) {
  needs = wanted;
  refresh();
}

/** Read what is due. */
export function refresh() {
  if (document.hidden) return;
  for (const each of needs) if (!reading.has(each.path) && isDue(each)) read(each.path);
}

/** After an action: what is in view is read now. */
export function refreshNow() {
  if (document.hidden) return;
  for (const { path } of needs) if (!isRefused(path)) read(path);
}

/** After a message of a job: what follows jobs is read, as soon as it has rested. */
export function refreshLive() {
  for (const { path, live } of needs) if (live) stale.add(path);
  refresh();
}

function isDue({ path, every, live }) {
  const { at, took, problem } = resource(path);
  const age = Date.now() - at;
  if (at && age < REST * took) return false;
  if (isRefused(path)) return age > REFUSED_MS;
  if (stale.has(path)) return true;
  if (problem) return age > AGAIN_MS;
  return age > (live && state.connection !== "live" ? Math.min(POLL_MS, every) : every);
}

/** Whether it is of no use to ask again soon: what is not there, and the like. */
function isRefused(path) {
  const { problem, data: before } = resource(path);
  return problem?.status >= 400 && problem.status < 500 && problem.status !== 401 && before === null;
}

async function read(path) {
  if (reading.has(path)) return void again.add(path);
  reading.add(path);
  stale.delete(path);
  const began = Date.now();
  const found = await get(path).then(
    (answer) => ({ data: answer, problem: null }),
    (problem) => ({ data: data(path), problem }),
  );
  reading.delete(path);
  keep(path, { ...found, at: Date.now(), took: Date.now() - began });
  if (again.delete(path)) read(path);
}

function keep(path, found) {
  change(({ read: all }) => {
    all.set(path, found);
    // What the view does not need any more is forgotten in time.
    if (all.size > KEPT) all.delete([...all.keys()].find((each) => !needs.some((need) => need.path === each)));
    noteServer(found);
  });
}

/** Whether the server is there, and what its clock says. */
function noteServer({ data: answer, problem, at }) {
  const seen = answer?.seen_at ?? answer?.items?.[0]?.seen_at;
  if (seen && !problem) state.ahead = seen - at;
  if (problem?.status === 0) state.connection = "away";
  else if (state.connection === "away") {
    state.connection = "polling";
    returned();
  }
}
