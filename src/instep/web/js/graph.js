// Graphs of boxes in layers: what a box follows from is on its left; on a narrow page, above it.

import { svg } from "./dom.js";
import { state } from "./store.js";

export const WIDTH = 168;
export const HEIGHT = 46;
const GAP_ALONG = 56;
const GAP_ACROSS = 14;
const LONGEST = 20;

export function clipped(text) {
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}

/** As far from the root as the longest way there; there are no circles, for inputs are older than what uses them. */
export function walk(nodes, uuid, layer, step, next) {
  const node = nodes.get(uuid);
  if (node.layer !== null && Math.abs(node.layer) >= Math.abs(layer) && layer !== 0) return;
  node.layer = layer;
  for (const each of next(uuid)) walk(nodes, each, layer + step, step, next);
}

/** Places of nodes, `{uuid, layer}` by id, and the size of the whole. */
export function layout(nodes) {
  const layers = new Map();
  for (const node of nodes.values()) layers.set(node.layer, [...(layers.get(node.layer) ?? []), node]);
  const order = [...layers.keys()].sort((one, other) => one - other);
  const across = order.length * (WIDTH + GAP_ALONG) <= Math.max(state.width, WIDTH + GAP_ALONG);
  const most = Math.max(...[...layers.values()].map((each) => each.length));
  const places = new Map();
  for (const [along, layer] of order.entries()) {
    for (const [beside, node] of layers.get(layer).entries()) {
      const x = across ? along * (WIDTH + GAP_ALONG) : beside * (WIDTH + GAP_ACROSS);
      const y = across ? beside * (HEIGHT + GAP_ACROSS) : along * (HEIGHT + GAP_ALONG / 2);
      places.set(node.uuid, { x: x + 1, y: y + 1 });
    }
  }
  const width =
    2 + (across ? order.length * (WIDTH + GAP_ALONG) - GAP_ALONG : most * (WIDTH + GAP_ACROSS) - GAP_ACROSS);
  const height =
    2 + (across ? most * (HEIGHT + GAP_ACROSS) - GAP_ACROSS : order.length * (HEIGHT + GAP_ALONG / 2) - GAP_ALONG / 2);
  return { places, width, height, across };
}

/** From what was there to what was made of it. */
export function edgeLine({ from, to, link: kind }, places, across) {
  const [one, other] = [places.get(to), places.get(from)];
  const key = `${from} ${to} ${kind}`;
  if (kind === "previous") {
    const [upper, lower] = one.y < other.y ? [one, other] : [other, one];
    const path = `M${upper.x + WIDTH / 2} ${upper.y + HEIGHT}L${lower.x + WIDTH / 2} ${lower.y}`;
    const beside = `M${one.x + WIDTH} ${one.y + HEIGHT / 2}L${other.x} ${other.y + HEIGHT / 2}`;
    return svg("path", { key, class: "edge previous", d: one.y === other.y ? beside : path });
  }
  if (!across) {
    const [x1, y1, x2, y2] = [one.x + WIDTH / 2, one.y + HEIGHT, other.x + WIDTH / 2, other.y];
    const line = svg("path", {
      class: "edge",
      d: `M${x1} ${y1}C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`,
    });
    return svg("g", { key }, line, svg("path", { class: "arrow", d: `M${x2} ${y2}l-4 -7h8z` }));
  }
  const [x1, y1, x2, y2] = [one.x + WIDTH, one.y + HEIGHT / 2, other.x, other.y + HEIGHT / 2];
  const line = svg("path", {
    class: "edge",
    d: `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`,
  });
  return svg("g", { key }, line, svg("path", { class: "arrow", d: `M${x2} ${y2}l-7 -4v8z` }));
}
