// What may be asked of a job: stop, resume, retry.

import { act, isBusy } from "./act.js";
import { shortId } from "./format.js";
import { action } from "./pieces.js";
import { hasEnded } from "./progress.js";
import { link } from "./route.js";
import { words } from "./states.js";

/** Buttons for what makes sense in this state. */
export function jobActions(job, state) {
  if (state === "STOPPED") return [button(job, "resume", "Resume", said), button(job, "retry", "Retry", saidRetry)];
  if (!hasEnded(state)) return state === "STOPPING" ? null : button(job, "stop", "Stop", said);
  const failed = job.counts.failed || job.slices.FAILED || job.slices.CANCELLED;
  return failed ? button(job, "retry", "Retry", saidRetry) : null;
}

function button(job, what, text, say) {
  const name = `${what} ${job.id}`;
  const ask = () => act(name, `/api/jobs/${encodeURIComponent(job.id)}/${what}`, {}, (answer) => say(job, answer));
  return action(text, isBusy(name), ask, "quiet");
}

function said(job, answer) {
  return `Job ${shortId(job.id)} is ${words(answer.state)}.`;
}

/** A retry is a job of its own, or wants that workers take up. */
function saidRetry(job, answer) {
  if (answer.job) location.hash = link("jobs", answer.job);
  return answer.wants.length
    ? `What failed in job ${shortId(job.id)} is tried again.`
    : `Nothing failed in job ${shortId(job.id)}.`;
}
