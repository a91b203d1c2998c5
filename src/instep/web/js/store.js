// All that the page shows follows from this one state; `change` it, and the page is drawn again with the next frame.

export const state = {
  /** Where we are: see route.js. */
  route: { name: "jobs", argument: null, query: new URLSearchParams() },
  /** What was read from the server, by path: see resource.js. */
  read: new Map(),
  /** The latest message about each job: see live.js. */
  live: new Map(),
  /** "live", "polling" or "away". */
  connection: "polling",
  /** Why the server cannot see how jobs are, or null. */
  trouble: null,
  /** Milliseconds that the server's clock is ahead of this one. */
  ahead: 0,
  now: Date.now(),
  /** Room for content, in pixels. */
  width: document.getElementById("main").clientWidth,
  /** The dialog that is open, if any: see dialog.js. */
  dialog: null,
  /** What the last action came to: `{text, bad}`. */
  notice: null,
  /** Actions that wait for their answers, by name. */
  busy: new Set(),
  /** What was chosen or opened in views, by names of their own. */
  chosen: new Map(),
};

let draw = () => {};
let asked = false;

export function onChange(drawPage) {
  draw = drawPage;
}

export function change(how) {
  how?.(state);
  if (asked) return;
  asked = true;
  // A hidden page has no frames; it is drawn when it is seen again.
  requestAnimationFrame(() => {
    asked = false;
    draw(state);
  });
}

export function choose(name, value) {
  change(({ chosen }) => chosen.set(name, value));
}

export function chosen(name, otherwise = null) {
  return state.chosen.has(name) ? state.chosen.get(name) : otherwise;
}

/** The server's time now. */
export function serverNow() {
  return state.now + state.ahead;
}
