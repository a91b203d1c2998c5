// States: what each is called, and how it looks. Seven looks serve all of them; each has a shape of its own, so that
// nothing is told by colour alone.

import { h, svg } from "./dom.js";

const LOOKS = {
  done: ["COMPLETED", "Indexed", "Live", "Successful", "steady", "promoted"],
  work: ["RUNNING", "PROCESSING", "Indexing", "Building", "Refreshing", "UpstreamBuilding", "switched"],
  wait: ["INITIALIZING", "READY", "PENDING", "NotIndexed", "Missing", "Idle", "declared"],
  warn: ["COMPLETED_WITH_ERRORS", "STOPPING", "Backfilling", "Tainted", "late"],
  bad: ["FAILED", "Error", "Failed", "UpstreamFailed", "stale"],
  off: ["STOPPED", "CANCELLED", "Expired", "Canceled", "Replaced"],
  unknown: ["Unknown"],
};
const LOOK = new Map(Object.entries(LOOKS).flatMap(([look, states]) => states.map((state) => [state, look])));

const WORDS = {
  INITIALIZING: "planning",
  COMPLETED_WITH_ERRORS: "with errors",
  NotIndexed: "not indexed",
  UpstreamBuilding: "upstream builds",
  UpstreamFailed: "upstream failed",
};
/** What a slice's state is called, as `instep job show` does. */
const SLICE_WORDS = {
  PENDING: "waiting",
  PROCESSING: "in work",
  COMPLETED: "completed",
  FAILED: "failed",
  CANCELLED: "cancelled",
};
export const SLICE_STATES = Object.keys(SLICE_WORDS);

export function look(state) {
  return LOOK.get(state) ?? "unknown";
}

export function words(state) {
  return WORDS[state] ?? state.toLowerCase();
}

export function sliceWords(state) {
  return SLICE_WORDS[state] ?? words(state);
}

const SHAPES = {
  done: () => [
    svg("circle", { cx: 8, cy: 8, r: 7, class: "fill" }),
    svg("path", { d: "M4.8 8.2l2.2 2.3 4.2-4.8", class: "cut" }),
  ],
  work: () => [
    svg("circle", { cx: 8, cy: 8, r: 6, class: "line" }),
    svg("path", { d: "M8 2a6 6 0 0 1 0 12z", class: "fill" }),
  ],
  wait: () => [svg("circle", { cx: 8, cy: 8, r: 6, class: "line" })],
  warn: () => [
    svg("path", { d: "M8 1.2L15.4 14.4H.6z", class: "fill" }),
    svg("path", { d: "M8 6v4M8 11.6v1", class: "cut" }),
  ],
  bad: () => [
    svg("path", { d: "M1.5 1.5h13v13h-13z", class: "fill" }),
    svg("path", { d: "M5 5l6 6M11 5l-6 6", class: "cut" }),
  ],
  off: () => [svg("circle", { cx: 8, cy: 8, r: 6, class: "line" }), svg("path", { d: "M4.8 8h6.4", class: "line" })],
  unknown: () => [
    svg("circle", { cx: 8, cy: 8, r: 6, class: "line" }),
    svg("path", { d: "M6.3 6.6a1.8 1.8 0 1 1 2.5 1.7c-.6.3-.8.6-.8 1.2M8 11.2v.9", class: "line" }),
  ],
};

/** Of an instance: one that was Live until another took its place is not Live any more. */
export function instanceState({ state, ended_at: endedAt }) {
  return endedAt !== null && state === "Live" ? "Replaced" : state;
}

/** The shape alone; the caller adds the state in words. */
export function glyph(state) {
  const name = look(state);
  return svg("svg", { class: `glyph ${name}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, SHAPES[name]());
}

/** Shape and word. */
export function chip(state, text) {
  return h("span", { class: "chip" }, glyph(state), h("span", null, text ?? words(state)));
}
