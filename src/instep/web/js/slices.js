// The slices of a job, each a cell in the colour of its state: 50,000 of them on one canvas. The mouse or the arrow
// keys pick a slice, which is then described in words; the legend counts the states and can leave only one of them.

import { path } from "./api.js";
import { h } from "./dom.js";
import { count, duration, reference, shortId } from "./format.js";
import { draw, indexAt, perRow } from "./grid.js";
import { empty, problemNote, loading, section, table } from "./pieces.js";
import { data, resource } from "./resource.js";
import { chip, SLICE_STATES, sliceWords } from "./states.js";
import { choose, chosen } from "./store.js";

/** Slices that failed are also listed, so many of them. */
const LISTED = 20;

const base = (id) => `/api/jobs/${encodeURIComponent(id)}/slices`;
const gridPath = (id) => `${base(id)}/grid`;
const failedPath = (id) => path(base(id), { state: "FAILED", limit: LISTED });
const onePath = (id, { ref, index }) => path(base(id), { entity: ref, after: index ? index - 1 : "", limit: 1 });

export function slicesNeeds(id, job) {
  if (!job?.parts.length) return [];
  const picked = chosen(`settled ${id}`);
  return [
    { path: gridPath(id), every: 30_000, live: true },
    job.slices.FAILED ? { path: failedPath(id), every: 30_000, live: true } : null,
    picked ? { path: onePath(id, picked), every: 30_000, live: true } : null,
  ].filter(Boolean);
}

export function slicesSection(job, how) {
  const { data: grid, problem } = resource(gridPath(job.id));
  if (!grid) return section("Slices", null, problem ? problemNote(problem) : loading());
  const parts = grid.parts.filter((each) => each.states.length);
  if (!parts.length) return section("Slices", null, empty("There was nothing to do."));
  return section(
    "Slices",
    null,
    problemNote(problem),
    legend(job.id, how.slices),
    parts.map((part) => partGrid(job.id, part, grid.states, parts.length > 1)),
    inspector(job.id),
    failedList(job),
  );
}

function legend(id, slices) {
  const only = chosen(`slices ${id}`);
  return h(
    "div",
    { class: "legend", role: "group", "aria-label": "Show only slices that are" },
    SLICE_STATES.map((state) =>
      h(
        "button",
        {
          key: state,
          type: "button",
          class: "quiet",
          "aria-pressed": String(only === state),
          onclick: () => choose(`slices ${id}`, only === state ? null : state),
        },
        chip(state, sliceWords(state)),
        h("b", null, count(slices[state] ?? 0)),
      ),
    ),
  );
}

function partGrid(id, part, letters, named) {
  const name = reference(part.ref, part.generation);
  const key = `${part.ref} ${part.generation}`;
  const at = pickedIn(id, part);
  const total = part.states.length;
  return h(
    "figure",
    { key, class: "grid" },
    named ? h("figcaption", null, name, " ", h("span", { class: "soft" }, count(total))) : null,
    h("canvas", {
      tabindex: "0",
      role: "slider",
      "aria-label": `Slices of ${name}`,
      "aria-orientation": "horizontal",
      "aria-valuemin": "1",
      "aria-valuemax": String(total),
      "aria-valuenow": String((at ?? 0) + 1),
      "aria-valuetext": spoken(at ?? 0, part, letters),
      "aria-describedby": "slices-keys",
      onpointermove: (event) => event.pointerType === "mouse" && choose(`hover ${id}`, hovered(event, part)),
      onpointerleave: () => choose(`hover ${id}`, null),
      onclick: (event) => pick(id, part, indexAt(event, part.states.length)),
      onkeydown: (event) => onKey(event, id, part, letters, at),
      drawn: (canvas) => draw(canvas, { states: part.states, letters, only: chosen(`slices ${id}`), at }),
    }),
  );
}

function pickedIn(id, part) {
  const picked = chosen(`slice ${id}`);
  return picked?.ref === part.ref && picked.generation === part.generation ? picked.index : null;
}

function hovered(event, part) {
  const index = indexAt(event, part.states.length);
  return index === null ? null : { ref: part.ref, generation: part.generation, index };
}

let settling = null;

/** What is picked is described once it is picked for a moment: not every slice that an arrow key passes. */
function pick(id, part, index) {
  if (index === null) return;
  const picked = { ref: part.ref, generation: part.generation, index };
  choose(`slice ${id}`, picked);
  clearTimeout(settling);
  settling = setTimeout(() => choose(`settled ${id}`, picked), 200);
}

function onKey(event, id, part, letters, at) {
  const next = target(event, part, letters, at ?? 0);
  if (next === null) return;
  event.preventDefault();
  pick(id, part, Math.max(0, Math.min(part.states.length - 1, next)));
}

function target({ key, target: canvas }, { states }, letters, at) {
  const row = perRow(canvas);
  const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row, PageDown: 10 * row, PageUp: -10 * row };
  if (key in moves) return at + moves[key];
  if (key === "Home") return 0;
  if (key === "End") return states.length - 1;
  if (key === "n" || key === "N") {
    const failed = Object.entries(letters).find(([, state]) => state === "FAILED")?.[0];
    const found = key === "n" ? states.indexOf(failed, at + 1) : states.lastIndexOf(failed, Math.max(0, at - 1));
    return found < 0 ? null : found;
  }
  return null;
}

function spoken(index, { states }, letters) {
  return `slice ${count(index + 1)} of ${count(states.length)}, ${sliceWords(letters[states[index]])}`;
}

/** What is known of the slice under the mouse, or of the one that was picked. */
function inspector(id) {
  const at = chosen(`hover ${id}`) ?? chosen(`slice ${id}`);
  return h(
    "p",
    { class: "inspector" },
    at ? described(id, at) : h("span", { class: "soft" }, "Point at a slice to see what it is."),
    h("span", { id: "slices-keys", class: "soft keys" }, "Arrow keys move, n goes to the next that failed."),
  );
}

function described(id, at) {
  const { parts, states: letters } = data(gridPath(id));
  const part = parts.find((each) => each.ref === at.ref && each.generation === at.generation);
  const state = letters[part?.states[at.index]];
  if (!state) return null;
  const known = data(onePath(id, at))?.items.find((each) => each.index === at.index);
  return h(
    "span",
    { class: "facts" },
    chip(state, sliceWords(state)),
    h("b", null, `${reference(at.ref, at.generation)}, slice ${count(at.index)}`),
    known ? facts(known).map((each) => h("span", { key: each }, each)) : null,
    known?.error ? h("span", { class: "reason" }, known.error) : null,
  );
}

function facts(slice) {
  const took =
    slice.finished_at && slice.claimed_at ? `took ${duration((slice.finished_at - slice.claimed_at) / 1000)}` : null;
  return [
    slice.units ? `${count(slice.units)} planned` : null,
    slice.attempts ? `${count(slice.attempts)} bad ends` : null,
    slice.worker ? `by worker ${shortId(slice.worker)}` : null,
    took,
  ].filter(Boolean);
}

function failedList(job) {
  const found = job.slices.FAILED ? data(failedPath(job.id)) : null;
  if (!found?.items.length) return null;
  const columns = [
    "entity",
    { name: "slice", number: true },
    { name: "planned", number: true },
    { name: "tries", number: true },
    "last error",
  ];
  const rows = found.items.map((each) => ({
    key: each.id,
    cells: [
      reference(each.ref),
      count(each.index),
      count(each.units),
      count(each.attempts),
      h("span", { class: "reason" }, each.error ?? ""),
    ],
  }));
  return [
    h("h3", null, found.next ? `The first ${LISTED} that failed` : "Slices that failed"),
    table("Slices that failed", columns, rows),
  ];
}
