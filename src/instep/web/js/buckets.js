// Buckets as bars: what each holds against the mean, and which one holds too much.

import { h, svg } from "./dom.js";
import { bytes, count, duration, reference } from "./format.js";
import { loading, moment, problemNote, section, table, warning } from "./pieces.js";
import { state } from "./store.js";

const HEIGHT = 120;
/** Bars are no wider than this, however few there are. */
const WIDEST = 36;
/** More than so many times the mean is too much: `instep.domain.buckets.SKEW`. */
const SKEW = 3;

export function bucketsSection({ data, problem }) {
  if (!data) return section("Buckets", null, problem ? problemNote(problem) : loading());
  return data.items.map((each) => one(each, problem));
}

function one(each, problem) {
  const rows = each.buckets.reduce((sum, bucket) => sum + bucket.rows, 0);
  const mean = rows / each.buckets.length;
  return section(
    `Buckets${each.generation ? ` of ${each.generation}` : ""}`,
    h("span", { class: "soft" }, `${count(each.buckets.length)} buckets, ${count(Math.round(mean))} rows each in the mean`),
    problemNote(problem),
    each.warnings.map(warning),
    bars(each.buckets, mean),
    numbers(each.buckets),
  );
}

function bars(buckets, mean) {
  const width = Math.max(120, state.width);
  const step = Math.min(WIDEST, width / buckets.length);
  const most = Math.max(1, mean * 1.25, ...buckets.map((each) => each.rows));
  const y = (rows) => HEIGHT - (rows / most) * (HEIGHT - 4);
  const end = step * buckets.length;
  const shown = buckets.map((each, place) => {
    const skewed = each.rows > SKEW * mean;
    const gap = step > 3 ? 1 : 0;
    return svg(
      "g",
      { key: each.bucket },
      svg("title", null, `bucket ${each.bucket}: ${count(each.documents)} documents, ${count(each.rows)} rows${skewed ? ", too many" : ""}`),
      svg("rect", { class: skewed ? "fill-bad" : "fill-done", x: place * step, y: y(each.rows), width: step - gap, height: HEIGHT - y(each.rows) }),
      each.pending ? svg("rect", { class: "fill-work", x: place * step, y: HEIGHT - 3, width: step - gap, height: 3 }) : null,
      svg("rect", { class: "clear", x: place * step, y: 0, width: step, height: HEIGHT }),
    );
  });
  const at = y(mean);
  return svg(
    "svg",
    { class: "bars", width: end, height: HEIGHT + 1, viewBox: `0 0 ${end} ${HEIGHT + 1}`, role: "img", "aria-label": spoken(buckets, mean) },
    shown,
    svg("path", { key: "mean", class: "mean", d: `M0 ${at}H${end}` }),
    svg("path", { key: "ground", class: "ground", d: `M0 ${HEIGHT + 0.5}H${end}` }),
  );
}

function spoken(buckets, mean) {
  const largest = buckets.reduce((one, other) => (other.rows > one.rows ? other : one));
  const times = mean ? `, ${(largest.rows / mean).toFixed(1)} times the mean` : "";
  return `Rows by bucket; bucket ${largest.bucket} has most: ${count(largest.rows)}${times}.`;
}

function numbers(buckets) {
  const columns = ["bucket", "documents", "rows", "size", "changes waiting", "mean latency", "longest"].map((name) => ({ name, number: true }));
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
