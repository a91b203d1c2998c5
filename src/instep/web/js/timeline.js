// A partition's instances on one line of time, each in a lane of its own: waiting, being built, live until it ended.

import { h } from "./dom.js";
import { clockText, dayText, duration, exactTime, shortId } from "./format.js";
import { empty, section } from "./pieces.js";
import { chip, instanceState, look, words } from "./states.js";
import { choose, chosen, serverNow, state } from "./store.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [1, 2, 5, 10, 30]
  .map((each) => each * SECOND)
  .concat(
    [1, 2, 5, 10, 30].map((each) => each * MINUTE),
    [1, 2, 6, 12].map((each) => each * HOUR),
    [1, 2, 7, 14, 30, 90, 365].map((each) => each * DAY),
  );
/** Room that a mark on the axis takes. */
const MARK_WIDTH = 110;
const TEXT_WIDTH = 80;
/** Room beside the lanes, and from which width on they have any: see .timeline in views.css. */
const INFO_WIDTH = 254;
const WIDE = 700;

export function timeline(ref, items) {
  if (!items.length) return section("Instances", null, empty("Nothing has been built of it yet."));
  const now = serverNow();
  const first = Math.min(...items.map((each) => each.created_at));
  const extent = { first, length: Math.max(SECOND, now - first) };
  return section(
    "Instances",
    null,
    h(
      "div",
      { class: "timeline" },
      axis(extent),
      h(
        "ol",
        null,
        items.map((each) => lane(ref, each, extent, now)),
      ),
    ),
  );
}

function axis({ first, length }) {
  const width = state.width - (state.width < WIDE ? 0 : INFO_WIDTH);
  const room = Math.max(2, Math.floor(width / MARK_WIDTH));
  const step = STEPS.find((each) => length / each <= room) ?? STEPS.at(-1);
  const marks = [];
  const last = first + length * (1 - TEXT_WIDTH / width);
  // Days begin where the reader is.
  const zone = new Date(first).getTimezoneOffset() * MINUTE;
  for (let at = Math.ceil((first - zone) / step) * step + zone; at <= last; at += step) {
    marks.push(h("span", { key: at, vars: { at: (at - first) / length } }, mark(at, step, !marks.length)));
  }
  return h("div", { class: "axis", "aria-hidden": "true" }, h("div", null, marks));
}

/** The day where it begins, the time elsewhere; both at the first mark, where there may be others. */
function mark(at, step, isFirst) {
  if (step < HOUR) return clockText(at, step < MINUTE);
  const date = new Date(at);
  if (step >= DAY || date.getHours() * HOUR + date.getMinutes() * MINUTE < step) return dayText(at);
  return isFirst ? `${dayText(at)}, ${clockText(at, false)}` : clockText(at, false);
}

function lane(ref, each, { first, length }, now) {
  const isPicked = chosen(`instance ${ref}`) ? chosen(`instance ${ref}`) === each.uuid : each.canonical;
  const end = each.ended_at ?? now;
  const place = (at) => (Math.min(end, at) - first) / length;
  const live = each.live_at ?? end;
  const begun = each.started_at ?? live;
  const state = instanceState(each);
  const bar = (name, from, to) =>
    to > from ? h("span", { key: name, class: name, vars: { from: place(from), to: place(to) } }) : null;
  return h(
    "li",
    { key: each.uuid, class: isPicked ? "picked" : null },
    h(
      "button",
      {
        type: "button",
        class: "info",
        "aria-pressed": String(isPicked),
        onclick: () => choose(`instance ${ref}`, each.uuid),
      },
      chip(state),
      h("code", null, shortId(each.uuid)),
      h("span", { class: "soft" }, each.generation ? `${each.reason}, ${each.generation}` : each.reason),
      h("span", { class: "unseen" }, spoken(each, end)),
    ),
    h(
      "div",
      { class: "lane", title: spoken(each, end), "aria-hidden": "true" },
      bar("bar waited", each.created_at, begun),
      bar("bar fill-work", begun, live),
      bar(each.ended_at ? "bar past" : "bar fill-done", live, end),
      each.ended_at ? h("span", { key: "end", class: `end fill-${look(state)}`, vars: { from: place(end) } }) : null,
    ),
  );
}

function spoken(each, end) {
  const built =
    each.live_at && each.started_at ? `, built in ${duration((each.live_at - each.started_at) / 1000)}` : "";
  const ended = each.ended_at
    ? `, until ${exactTime(end)}: ${each.ended ?? words(instanceState(each))}`
    : ", canonical";
  return `made ${exactTime(each.created_at)}${built}${ended}`;
}
