// Workers: who is registered, what they do, and whether they still say that they live.

import { h } from "./dom.js";
import { count, reference, shortId } from "./format.js";
import { empty, moment, read, table, view, warning } from "./pieces.js";
import { resource } from "./resource.js";
import { link } from "./route.js";
import { chip } from "./states.js";

const PATH = "/api/workers";

export function needs() {
  return [{ path: PATH, every: 5_000, live: true }];
}

export function workersView() {
  return view(
    "Workers",
    null,
    read(resource(PATH), ({ items }) => content(items)),
  );
}

function content(items) {
  if (!items.length) return empty("There are no workers. Start one on any server: ", h("code", null, "instep worker"));
  const late = items.filter((each) => each.pulse !== "steady");
  return [late.map((each) => warning(lateText(each))), workersTable(items)];
}

function lateText(each) {
  const silent = `${each.kind} ${shortId(each.id)} on ${each.host} has missed heartbeats`;
  return each.pulse === "stale"
    ? `${silent} for so long that its slices go to others.`
    : `${silent}: it is paused, cut off or gone.`;
}

export function workersTable(items) {
  const columns = [
    "worker",
    "kind",
    "heartbeat",
    "where",
    { name: "slices in work", number: true },
    "on",
    "jobs",
    "began",
  ];
  const rows = items.map((each) => ({
    key: each.id,
    cells: [
      h("code", null, shortId(each.id)),
      each.kind,
      [chip(each.pulse), " ", moment(each.heartbeat_at)],
      `${each.host}, process ${each.pid}`,
      count(each.slices),
      each.refs.map((ref) => reference(ref)).join(", ") || "–",
      each.jobs.length
        ? each.jobs.map((id) => [h("a", { href: link("jobs", id) }, h("code", null, shortId(id))), " "])
        : "–",
      moment(each.started_at),
    ],
  }));
  return table("Workers", columns, rows);
}
