// Cells on a canvas: as large as the room allows, drawn again only when something about them has changed.

import { look } from "./states.js";

const SMALLEST = 3;
const LARGEST = 16;
/** Cells grow until they are as high together as this. */
const HIGH = 300;
/** From this size on cells have shapes and not just colours. */
const SHAPED = 8;
/** Up to this size there is no room between cells, and one that failed overlaps its neighbours: it is to be seen. */
const TINY = 4;

const drawn = new WeakMap();

/** Cells in one row of what is drawn on a canvas. */
export function perRow(canvas) {
  return drawn.get(canvas)?.row ?? 1;
}

/** The cell under the pointer, or null. */
export function indexAt(event, total) {
  const layout = drawn.get(event.target);
  if (!layout) return null;
  const column = Math.floor(event.offsetX / layout.cell);
  const index = Math.floor(event.offsetY / layout.cell) * layout.row + column;
  return column >= 0 && column < layout.row && index >= 0 && index < total ? index : null;
}

/** `states` has a letter for each cell, `letters` says which state it is; `only` fades all others, `at` is framed. */
export function draw(canvas, { states, letters, only, at }) {
  const width = canvas.parentElement.clientWidth;
  if (!width) return;
  const palette = paletteOf(canvas);
  const signature = [width, devicePixelRatio, only, at, Object.values(palette).join()].join("|");
  const before = drawn.get(canvas);
  if (before?.signature === signature && before.states === states) return;
  const layout = { ...fit(states.length, width), signature, states };
  drawn.set(canvas, layout);
  const context = sized(canvas, layout, width, states.length);
  const failed = [];
  for (let index = 0; index < states.length; index++) {
    const state = letters[states[index]];
    if (look(state) === "bad") failed.push(index);
    else paint(context, index, layout, state, palette, only);
  }
  for (const index of failed) paint(context, index, layout, letters[states[index]], palette, only);
  if (at !== null) frame(context, at, layout, palette.ink);
}

function fit(total, width) {
  let cell = LARGEST;
  while (cell > SMALLEST && Math.ceil(total / Math.floor(width / cell)) * cell > HIGH) cell--;
  return { cell, row: Math.max(1, Math.floor(width / cell)) };
}

function sized(canvas, { cell, row }, width, total) {
  const height = Math.ceil(total / row) * cell;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.setProperty("--height", `${height}px`);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

function paint(context, index, { cell, row }, state, palette, only) {
  const x = (index % row) * cell;
  const y = Math.floor(index / row) * cell;
  const size = cell > TINY ? cell - 1 : cell;
  const name = look(state);
  const more = cell <= TINY && name === "bad" ? 1 : 0;
  // Where cells are too small for an outline, what waits is pale.
  context.globalAlpha = only && only !== state ? 0.15 : name === "wait" && cell < SHAPED ? 0.45 : 1;
  context.fillStyle = palette[name];
  context.fillRect(x - more, y - more, size + 2 * more, size + 2 * more);
  if (cell < SHAPED) return;
  context.fillStyle = context.strokeStyle = palette.paper;
  context.lineWidth = 1.5;
  if (name === "wait") context.fillRect(x + 1, y + 1, size - 2, size - 2);
  else if (name === "work") context.fillRect(x + size / 2, y + 2, size / 2 - 2, size - 4);
  else if (name === "bad") cross(context, x + 2.5, y + 2.5, size - 5);
  else if (name === "off") context.fillRect(x + 2, y + size / 2 - 1, size - 4, 2);
}

function cross(context, x, y, size) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + size, y + size);
  context.moveTo(x + size, y);
  context.lineTo(x, y + size);
  context.stroke();
}

function frame(context, index, { cell, row }, colour) {
  context.globalAlpha = 1;
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.strokeRect((index % row) * cell - 1, Math.floor(index / row) * cell - 1, cell + 1, cell + 1);
}

/** The colours of this moment's scheme. A canvas cannot read the style sheet's variables itself. */
function paletteOf(canvas) {
  const style = getComputedStyle(canvas);
  return Object.fromEntries(
    ["done", "work", "wait", "warn", "bad", "off", "unknown", "paper", "ink"].map((name) => [
      name,
      style.getPropertyValue(`--${name}`),
    ]),
  );
}
