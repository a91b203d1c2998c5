// Changes: each asks for the token when there is none, says what it came to, and has what it touched read again.

import { announce } from "./announcer.js";
import { post } from "./api.js";
import { openDialog } from "./dialog.js";
import { refreshNow } from "./resource.js";
import { change, state } from "./store.js";
import { forget, token } from "./token.js";

/** POST; `said(answer)` is what it came to, in words. Returns the answer, or null when it was refused. */
export async function act(name, path, body, said) {
  if (!token()) return askForToken(() => act(name, path, body, said));
  if (state.busy.has(name)) return null;
  change(({ busy }) => busy.add(name));
  try {
    const answer = await post(path, body);
    tell(said(answer), false);
    return answer;
  } catch (problem) {
    if (problem.status === 401) {
      forget();
      return askForToken(() => act(name, path, body, said), "The server refused this token.");
    }
    tell(problem.text, true);
    return null;
  } finally {
    change(({ busy }) => busy.delete(name));
    refreshNow();
  }
}

function askForToken(again, why) {
  openDialog({ name: "token", again, why });
  return null;
}

/** What went well is told for so long; what went wrong, until it is closed. */
const TOLD_MS = 8_000;

function tell(text, bad) {
  announce(text);
  const notice = { text, bad };
  change(() => void (state.notice = notice));
  if (!bad)
    setTimeout(() => change(() => void (state.notice = state.notice === notice ? null : state.notice)), TOLD_MS);
}

export function isBusy(name) {
  return state.busy.has(name);
}
