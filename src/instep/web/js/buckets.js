// Buckets as bars: what each holds against the mean, and which one holds too much.

import { h, svg } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { empty, loading, moment, problemNote, section, table, warning } from "./pieces.js";
import { state } from "./store.js";

const HEIGHT = 120;
/** Room for what is written above a bar, and below. */
const ABOVE = 16;
const BELOW = 16;
/** Bars are no wider than this, however few there are, and have their numbers below from that width on. */
const WIDEST = 72;
const NUMBERED = 18;
/** Around the chart: see .chart in views.css. */
const PADDING = 26;
/** What is too much, as `instep.domain.buckets` has it: so many times the mean, and so many rows. */
const SKEW = 3;
const SKEW_ROWS = 1000;

export function bucketsSection({ data, problem }) {
  if (!data) return section("Buckets", null, problem ? problemNote(problem) : loading());
  return data.items.map((each) => one(each, problem));
}

function one(each, problem) {
  const rows = each.buckets.reduce((sum, bucket) => sum + bucket.rows, 0);
  const mean = rows / each.buckets.length;
  return section(
    `Buckets${each.generation ? ` of ${each.generation}` : ""}`,
    h(
      "span",
      { class: "soft" },
      `${count(each.buckets.length)} buckets, ${count(Math.round(mean))} rows each in the mean`,
    ),
    problemNote(problem),
    each.warnings.map(warning),
    rows ? bars(each.buckets, mean) : empty("No rows are in them yet."),
    numbers(each.buckets),
  );
}

function bars(buckets, mean) {
  const step = Math.min(WIDEST, Math.max(120, state.width - PADDING) / buckets.length);
  const most = Math.max(1, mean * 1.25, ...buckets.map((each) => each.rows));
  const y = (rows) => ABOVE + HEIGHT - (rows / most) * HEIGHT;
  const [end, ground] = [step * buckets.length, ABOVE + HEIGHT];
  return h(
    "div",
    { class: "chart" },
    svg(
      "svg",
      {
        class: "bars",
        width: end,
        height: ground + BELOW,
        viewBox: `0 0 ${end} ${ground + BELOW}`,
        role: "img",
        "aria-label": spoken(buckets, mean),
      },
      buckets.map((each, place) => bar(each, { x: place * step, step, y, ground, mean })),
      svg("path", { key: "mean", class: "mean", d: `M0 ${y(mean)}H${end}` }),
      svg("path", { key: "ground", class: "ground", d: `M0 ${ground + 0.5}H${end}` }),
    ),
  );
}

function bar(each, { x, step, y, ground, mean }) {
  const skewed = each.rows > Math.max(SKEW_ROWS, SKEW * mean);
  const width = step > 3 ? step - 1 : step;
  return svg(
    "g",
    { key: each.bucket },
    svg("title", null, `bucket ${each.bucket}: ${count(each.documents)} documents, ${count(each.rows)} rows`),
    svg("rect", { class: skewed ? "fill-bad" : "fill-done", x, y: y(each.rows), width, height: ground - y(each.rows) }),
    each.pending ? svg("rect", { class: "fill-work", x, y: ground - 3, width, height: 3 }) : null,
    skewed
      ? svg("text", { class: "times", x: x + step / 2, y: y(each.rows) - 4 }, `${(each.rows / mean).toFixed(1)}×`)
      : null,
    step < NUMBERED ? null : svg("text", { x: x + step / 2, y: ground + BELOW - 3 }, String(each.bucket)),
    svg("rect", { class: "clear", x, y: 0, width: step, height: ground }),
  );
}

function spoken(buckets, mean) {
  const largest = buckets.reduce((one, other) => (other.rows > one.rows ? other : one));
  const times = mean ? `, ${(largest.rows / mean).toFixed(1)} times the mean` : "";
  return `Rows by bucket; bucket ${largest.bucket} has most: ${count(largest.rows)}${times}.`;
}

function numbers(buckets) {
  const columns = ["bucket", "documents", "rows", "size", "changes waiting", "mean latency", "longest"].map((name) => ({
    name,
    number: true,
  }));
  const seconds = (milliseconds) => duration(milliseconds === null ? null : milliseconds / 1000);
  const rows = buckets.map((each) => ({
    key: each.bucket,
    cells: [
      String(each.bucket),
      count(each.documents),
      count(each.rows),
      bytes(each.bytes),
      each.pending ? [count(each.pending), " since ", moment(each.pending_since)] : count(each.pending),
      seconds(each.latency),
      seconds(each.longest),
    ],
  }));
  return h("details", null, h("summary", null, "The numbers"), table("Buckets", columns, rows));
}
