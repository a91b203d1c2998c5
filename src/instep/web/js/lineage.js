// Lineage as a graph: what an instance was made from on its left, what was made from it on its right, and dashed the
// instance whose place it took. On a narrow page the graph runs from top to bottom.

import { h, svg } from "./dom.js";
import { reference, shortId } from "./format.js";
import { clipped, edgeLine, HEIGHT, layout, walk, WIDTH } from "./graph.js";
import { loading, problemNote, section } from "./pieces.js";
import { link } from "./route.js";
import { instanceState, look, words } from "./states.js";
import { choose } from "./store.js";

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
