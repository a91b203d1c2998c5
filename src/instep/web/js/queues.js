// Pending queues: how far on their way, what they offer, what consumers hold.

import { h } from "./dom.js";
import { bytes, count, percent } from "./format.js";
import { empty, figures, moment, problemNote, read, section, view } from "./pieces.js";
import { resource } from "./resource.js";
import { chip } from "./states.js";

const PATH = "/api/queues";
const pathOf = (name) => `${PATH}/${encodeURIComponent(name)}`;

export function needs() {
  const names = (resource(PATH).data?.items ?? []).map((each) => each.name);
  return [PATH, ...names.map(pathOf)].map((path) => ({ path, every: 10_000, live: false }));
}

export function queuesView() {
  return view(
    "Queues",
    null,
    read(resource(PATH), ({ items }) =>
      items.length ? items.map(queue) : empty("The project declares no pending queues."),
    ),
  );
}

function queue({ name }) {
  const { data, problem } = resource(pathOf(name));
  if (!data) return section(name, null, problem ? problemNote(problem) : null);
  return section(
    name,
    [chip(data.phase), h("span", { class: "soft" }, `consumers read the ${data.reads}`)],
    problemNote(problem),
    data.offered === null
      ? empty("It is declared, and not made yet: ", h("code", null, `instep queue create ${name}`))
      : numbers(data),
  );
}

function numbers(data) {
  return figures([
    ["offered", count(data.offered)],
    ["held", count(data.leased.keys)],
    ["to retry", count(data.retrying.keys)],
    ["parked", data.parked.keys ? h("strong", { class: "bad" }, count(data.parked.keys)) : count(data.parked.keys)],
    data.oldest ? ["oldest", moment(Date.parse(data.oldest))] : ["oldest key", typeof data.oldest_key === "string" ? data.oldest_key : count(data.oldest_key)],
    ["withdrawn", count(data.withdrawn)],
    ["garbage", count(data.garbage && Object.values(data.garbage).reduce((one, other) => one + other, 0))],
    ["size", bytes(data.bytes)],
    data.backfill ? ["backfill", percent(data.backfill.share)] : null,
    data.verify ? ["verified", data.verify.equal ? "equal to the anti-join" : "not equal to the anti-join"] : null,
  ]);
}
