// What views need of the server: read when it is first asked for, and again when it is old. A view says which paths
// it needs and how fresh; nothing else is read, and nothing at all while the page is hidden.

import { get } from "./api.js";
import { change, state } from "./store.js";

/** Without the live channel, whatever is to be fresh is read so often. */
const POLL_MS = 2_500;
/** What could not be read is tried again after so long; what the server says is not there, later. */
const AGAIN_MS = 4_000;
const REFUSED_MS = 30_000;

let needs = [];

/** `{data, problem, at}` of a path; `data` is the last that was read, even when it could not be read since. */
export function resource(path) {
  return state.read.get(path) ?? { data: null, problem: null, at: 0 };
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
  for (const each of needs) if (due(each)) read(each.path);
}

/** After an action, or a message of a job: what shows it is read now. */
export function refreshNow(which = () => true) {
  if (!document.hidden) needs.filter((each) => which(each) && !isRefused(each.path)).forEach((each) => read(each.path));
}

/** Whether it is of no use to ask again soon: 404, and the like. */
function isRefused(path) {
  const { problem, data: before } = resource(path);
  return problem?.status >= 400 && problem.status < 500 && problem.status !== 401 && before === null;
}

function due({ path, every, live }) {
  const known = state.read.get(path);
  if (!known) return true;
  if (known.problem) return Date.now() - known.at > (isRefused(path) ? REFUSED_MS : AGAIN_MS);
  const age = live && state.connection !== "live" ? Math.min(POLL_MS, every) : every;
  return Date.now() - known.at > age;
}

const reading = new Set();
const unread = new Set();

async function read(path) {
  // Asked for again while it is read: once more afterwards, for the answer may be older than the question.
  if (reading.has(path)) return void unread.add(path);
  reading.add(path);
  try {
    keep(path, { data: await get(path), problem: null });
  } catch (problem) {
    keep(path, { data: resource(path).data, problem });
  } finally {
    reading.delete(path);
    if (unread.delete(path)) read(path);
  }
}

function keep(path, found) {
  change(({ read: all }) => {
    all.set(path, { ...found, at: Date.now() });
    const seen = found.data?.seen_at ?? found.data?.items?.[0]?.seen_at;
    if (seen && !found.problem) state.ahead = seen - Date.now();
    // What no view needs any more is forgotten in time.
    if (all.size > 200) all.delete(all.keys().next().value);
    if (found.problem?.status === 0) state.connection = "away";
    else if (state.connection === "away") state.connection = "polling";
  });
}
