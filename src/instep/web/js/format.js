// Numbers, times and ids as people read them.

const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

const NONE = "–";

/** `12,400`; a dash for what is not known, which is not zero. */
export function count(value) {
  return value === null || value === undefined ? NONE : number.format(value);
}

/** `1 document`, `12,400 documents`. */
export function amount(value, unit) {
  return `${count(value)} ${unit}${value === 1 ? "" : "s"}`;
}

/** `45 %`: never 100 before all is done, never 0 after something is. */
export function percent(share) {
  if (share > 0 && share < 0.01) return "< 1 %";
  return `${Math.floor(share * 100)} %`;
}

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return NONE;
  return `${perSecond >= 10 ? number.format(perSecond) : perSecond.toPrecision(2)}/s`;
}

/** `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const rounded = Math.round(seconds);
  if (rounded < 60) return `${rounded} s`;
  const inMinutes = Math.floor(rounded / 60);
  if (inMinutes < 60) return `${inMinutes} min ${rounded % 60} s`;
  const hours = Math.floor(inMinutes / 60);
  return hours < 48 ? `${hours} h ${inMinutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** `12 s`, `3 min`, `5 h`, `4 d`. */
export function span(milliseconds) {
  const whole = Math.max(0, Math.floor(milliseconds / 1000));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  const hours = Math.floor(whole / 3600);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} d`;
}

export function ago(then, now) {
  if (then === null || then === undefined) return NONE;
  return now - then < 1000 ? "now" : `${span(now - then)} ago`;
}

/** `14:02`, or `14:02:11`. */
export function clockText(milliseconds, withSeconds) {
  return (withSeconds ? seconds : minutes).format(milliseconds);
}

/** `3 Nov`. */
export function dayText(milliseconds) {
  return day.format(milliseconds);
}

export function exactTime(milliseconds) {
  return milliseconds === null || milliseconds === undefined ? "" : exact.format(milliseconds);
}

/** `512 B`, `1.5 MB`: powers of 1,000. */
export function bytes(size) {
  if (size === null || size === undefined) return NONE;
  let amount = size;
  let unit = "B";
  for (const larger of ["kB", "MB", "GB", "TB"]) {
    if (amount < 999.5) break;
    amount /= 1000;
    unit = larger;
  }
  return `${amount >= 10 || unit === "B" ? amount.toFixed(0) : amount.toFixed(1)} ${unit}`;
}

/** The beginning of an id: enough to know it again. */
export function shortId(id) {
  return id.slice(0, 8);
}

/** `Document` for `Document@global`, `Document (v2)` of a generation. */
export function reference(ref, generation) {
  const name = ref.endsWith("@global") ? ref.slice(0, -"@global".length) : ref;
  return generation ? `${name} (${generation})` : name;
}
