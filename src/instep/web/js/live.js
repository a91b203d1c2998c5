// The live channel: a message for every job that runs every two seconds, and at each change of a state. When it breaks
// the page polls, and asks again, later each time; the server then sends the messages that were missed.

import { announce, announceProgress } from "./announcer.js";
import { percent, shortId } from "./format.js";
import { hasEnded } from "./progress.js";
import { refreshLive } from "./resource.js";
import { words } from "./states.js";
import { change, state } from "./store.js";
import { token } from "./token.js";

const CHANNEL = "searchIndexJobStatus";
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

let wait = FIRST_WAIT_MS;
let after = null;
let timer = null;
let socket = null;

export function connect() {
  clearTimeout(timer);
  const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
  // A browser sends a WebSocket no headers: the token goes beside the name of the protocol.
  socket = new WebSocket(address, token() ? ["instep", `instep.token.${token()}`] : ["instep"]);
  socket.onopen = () => socket.send(JSON.stringify({ subscribe: CHANNEL, job: null, after }));
  socket.onmessage = (event) => take(JSON.parse(event.data));
  socket.onclose = () => {
    change(() => void (state.connection = state.connection === "away" ? "away" : "polling"));
    timer = setTimeout(connect, wait * (0.75 + Math.random() / 2));
    wait = Math.min(LONGEST_WAIT_MS, wait * 2);
  };
}

/** `job` is null in what concerns all of them, `data` in what says that a job is no more. */
function take({ channel, seq, at, job, data, error }) {
  if (channel !== CHANNEL) return;
  after = seq;
  wait = FIRST_WAIT_MS;
  const before = state.live.get(job);
  change(() => {
    state.connection = "live";
    if (error !== undefined) state.trouble = error;
    if (data) state.live.set(job, { ...data, at });
    else state.live.delete(job);
  });
  if (data) tell(job, data, before);
  if (job) refreshLive();
}

function tell(job, data, before) {
  const name = `Job ${shortId(job)}`;
  if (before && before.status !== data.status) return announce(`${name} is ${words(data.status)}.`);
  const { totalRecords, successRecords } = data.stats.jobStats;
  if (totalRecords && !hasEnded(data.status))
    announceProgress(`${name}: ${percent(successRecords / totalRecords)} done.`);
}

/** Called when the page is in view again, the server is back, or there is a token: no need to wait. */
export function hurry() {
  if (state.connection === "live" || socket.readyState === WebSocket.CONNECTING) return;
  // It may be half open: of a machine that slept, say.
  socket.onclose = null;
  socket.close();
  wait = FIRST_WAIT_MS;
  connect();
}
