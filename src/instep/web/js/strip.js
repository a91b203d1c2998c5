// Slices by state as one thin line: a job's weave at a glance.

import { svg } from "./dom.js";
import { count } from "./format.js";
import { sliceCount } from "./progress.js";
import { look, sliceWords, SLICE_STATES } from "./states.js";

/** In the order in which work flows: done, failed, in work, waiting. */
const ORDER = ["COMPLETED", "FAILED", "CANCELLED", "PROCESSING", "PENDING"];
const WIDTH = 120;
const HEIGHT = 8;

export function strip(slices) {
  const total = sliceCount(slices);
  const segments = [];
  let left = 0;
  for (const state of ORDER) {
    if (!slices[state]) continue;
    // A single failed slice of many is still seen.
    const width = Math.max(1.5, (slices[state] / total) * WIDTH);
    const x = Math.min(left, WIDTH - width);
    segments.push(svg("rect", { key: state, class: `fill-${look(state)}`, x, y: 0, width, height: HEIGHT }));
    left += (slices[state] / total) * WIDTH;
  }
  return svg(
    "svg",
    {
      class: "strip",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": slicesText(slices),
    },
    segments,
  );
}

/** `3 in work, 12 completed`. */
export function slicesText(slices) {
  const shown = SLICE_STATES.filter((each) => slices[each]).map((each) => `${count(slices[each])} ${sliceWords(each)}`);
  return shown.join(", ") || "no slices";
}
