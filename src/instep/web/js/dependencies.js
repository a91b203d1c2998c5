// Which entity is made from which: the graph of `depends_on`, with the state of each.

import { h, svg } from "./dom.js";
import { clipped, edgeLine, HEIGHT, layout, walk, WIDTH } from "./graph.js";
import { section } from "./pieces.js";
import { link } from "./route.js";
import { look, words } from "./states.js";

/** `entities` are the project's, `found` the states of those that are indexed as a whole. None without dependencies. */
export function dependenciesSection(entities, found) {
  const edges = entities.flatMap((each) => each.depends_on.map((from) => ({ from: each.name, to: from, link: "input" })));
  if (!edges.length) return null;
  const tied = new Set(edges.flatMap(({ from, to }) => [from, to]));
  const nodes = new Map([...tied].map((name) => [name, { uuid: name, layer: null }]));
  const users = (name) => edges.filter((each) => each.to === name).map((each) => each.from);
  for (const name of tied) if (!edges.some((each) => each.from === name)) walk(nodes, name, 0, 1, users);
  for (const node of nodes.values()) node.layer ??= 0;
  const states = new Map(found.map((each) => [each.ref.split("@")[0], each.state]));
  return section("Dependencies", null, drawing(nodes, edges, states, entities), inWords(edges));
}

function drawing(nodes, edges, states, entities) {
  const { places, width, height, across } = layout(nodes);
  const refs = new Map(entities.map((each) => [each.name, each.ref]));
  return h(
    "div",
    { class: "scroll lineage", tabindex: "0", role: "region", "aria-label": "Graph of dependencies" },
    svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Dependencies of entities" },
      edges.map((each) => edgeLine(each, places, across)),
      [...nodes.keys()].map((name) => box(name, places.get(name), states.get(name), refs.get(name))),
    ),
  );
}

function box(name, { x, y }, state, ref) {
  const said = state ? words(state) : "by namespace";
  const content = [
    svg("rect", { class: "box", x, y, width: WIDTH, height: HEIGHT, rx: 4 }),
    svg("rect", { class: state ? `fill-${look(state)}` : "fill-wait", x, y, width: 4, height: HEIGHT }),
    svg("text", { x: x + 14, y: y + 19, class: "name" }, clipped(name)),
    svg("text", { x: x + 14, y: y + 36, class: "soft" }, said),
  ];
  const properties = { key: name, class: "node", "aria-label": `${name}, ${said}` };
  return ref
    ? svg("a", { ...properties, href: link("partitions", ref) }, content)
    : svg("g", { ...properties, role: "img" }, content);
}

function inWords(edges) {
  const lines = edges.map(({ from, to }) => h("li", { key: `${from} ${to}` }, `${from} is made after ${to}`));
  return h("details", null, h("summary", null, "The graph in words"), h("ul", null, lines));
}
