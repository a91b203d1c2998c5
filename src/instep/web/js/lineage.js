// Lineage as a graph: what an instance was made from on its left, what was made from it on its right, and dashed the
// instance whose place it took. On a narrow page the graph runs from top to bottom.

import { h, svg } from "./dom.js";
import { reference, shortId } from "./format.js";
import { loading, problemNote, section } from "./pieces.js";
import { link } from "./route.js";
import { instanceState, look, words } from "./states.js";
import { choose, state } from "./store.js";

const WIDTH = 168;
const HEIGHT = 46;
const GAP_ALONG = 56;
const GAP_ACROSS = 14;

export function lineageSection({ data, problem }) {
  if (!data) return section("Lineage", null, problem ? problemNote(problem) : loading());
  const graph = graphOf(data);
  return section("Lineage", null, problemNote(problem), drawing(graph), list(graph));
}

/** Nodes with their layers (0 is the instance asked for, inputs before it, users after it), and edges. */
function graphOf(data) {
  const nodes = new Map(data.nodes.map(({ uuid, instance }) => [uuid, { uuid, instance, layer: null }]));
  for (const user of data.users)
    if (!nodes.has(user.uuid)) nodes.set(user.uuid, { uuid: user.uuid, instance: user, layer: null });
  const used = data.users.flatMap((user) =>
    user.inputs.map((input) => ({ from: user.uuid, to: input, link: "input" })),
  );
  const edges = unique([...data.edges, ...used]).filter((each) => nodes.has(each.from) && nodes.has(each.to));
  const inputs = edges.filter((each) => each.link === "input");
  walk(nodes, data.instance, 0, -1, (uuid) => inputs.filter((each) => each.from === uuid).map((each) => each.to));
  walk(nodes, data.instance, 0, 1, (uuid) => inputs.filter((each) => each.to === uuid).map((each) => each.from));
  for (const { from, to } of edges) nodes.get(to).layer ??= nodes.get(from).layer;
  for (const node of nodes.values()) node.layer ??= 0;
  return { root: data.instance, nodes, edges };
}

function unique(edges) {
  return [...new Map(edges.map((each) => [`${each.from} ${each.to} ${each.link}`, each])).values()];
}

/** As far from the root as the longest way there; there are no circles, for inputs are older than what uses them. */
function walk(nodes, uuid, layer, step, next) {
  const node = nodes.get(uuid);
  if (node.layer !== null && Math.abs(node.layer) >= Math.abs(layer) && layer !== 0) return;
  node.layer = layer;
  for (const each of next(uuid)) walk(nodes, each, layer + step, step, next);
}

function drawing({ root, nodes, edges }) {
  const { places, width, height, across } = layout(nodes);
  return h(
    "div",
    { class: "scroll lineage", tabindex: "0", role: "region", "aria-label": "Graph of the lineage" },
    svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Lineage of ${shortId(root)}` },
      edges.map((each) => edgeLine(each, places, across)),
      [...nodes.values()].map((node) => box(node, places.get(node.uuid), node.uuid === root)),
    ),
  );
}

function layout(nodes) {
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
function edgeLine({ from, to, link: kind }, places, across) {
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

function box({ uuid, instance }, { x, y }, isRoot) {
  const name = instance ? reference(instance.ref, instance.generation) : "forgotten";
  const said = instance ? words(instanceState(instance)) : "not kept";
  const pick = instance ? () => choose(`instance ${instance.ref}`, uuid) : null;
  const content = [
    svg("rect", { class: "box", x, y, width: WIDTH, height: HEIGHT, rx: 4 }),
    svg("rect", {
      class: instance ? `fill-${look(instanceState(instance))}` : "fill-wait",
      x,
      y,
      width: 4,
      height: HEIGHT,
    }),
    svg("text", { x: x + 14, y: y + 19, class: "name" }, clipped(name)),
    svg("text", { x: x + 14, y: y + 36, class: "soft" }, `${shortId(uuid)} · ${said}`),
  ];
  const properties = {
    key: uuid,
    class: isRoot ? "node root" : "node",
    "aria-label": `${name}, ${shortId(uuid)}, ${said}`,
  };
  return instance
    ? svg("a", { ...properties, href: link("partitions", instance.ref), onclick: pick }, content)
    : svg("g", properties, content);
}

const LONGEST = 20;

function clipped(text) {
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}

function list({ nodes, edges }) {
  const name = (uuid) => {
    const { instance } = nodes.get(uuid);
    return `${instance ? reference(instance.ref, instance.generation) : "forgotten"} ${shortId(uuid)}`;
  };
  const lines = edges.map(({ from, to, link: kind }) =>
    h(
      "li",
      { key: `${from} ${to} ${kind}` },
      name(from),
      kind === "input" ? " was made from " : " took the place of ",
      name(to),
    ),
  );
  return h(
    "details",
    null,
    h("summary", null, "The graph in words"),
    h(
      "ul",
      null,
      lines.length ? lines : h("li", null, "It was made from no other instance, and took the place of none."),
    ),
  );
}
