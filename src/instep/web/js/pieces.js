// Small pieces that several views are made of.

import { h } from "./dom.js";
import { ago, exactTime } from "./format.js";
import { glyph } from "./states.js";
import { serverNow } from "./store.js";

/** A page of its own: its heading takes the focus when one comes to it. */
export function view(title, aside, ...content) {
  return [
    h(
      "div",
      { class: "head" },
      h("h1", { id: "title", tabindex: "-1" }, title),
      aside ? h("div", { class: "aside" }, aside) : null,
    ),
    content,
  ];
}

/** Known by its title: when another comes before it, what is inside keeps the focus. */
export function section(title, aside, ...content) {
  return h(
    "section",
    { key: title, "aria-label": title },
    h("div", { class: "head" }, h("h2", null, title), aside ? h("div", { class: "aside" }, aside) : null),
    content,
  );
}

/** What is not (yet) there, and what to do about it. */
export function empty(...content) {
  return h("p", { class: "empty" }, content);
}

export function loading() {
  return h("p", { class: "empty" }, "Reading…");
}

/** Why something could not be read; what was read before stays in view. */
export function problemNote(problem) {
  if (!problem) return null;
  return h("p", { class: "note bad" }, glyph("FAILED"), h("span", null, withCode(problem.text)));
}

/** Content of one path: as long as nothing was read, that is said instead. */
export function read(resource, show) {
  if (resource.data === null) return resource.problem ? problemNote(resource.problem) : loading();
  return [problemNote(resource.problem), show(resource.data)];
}

export function warning(text) {
  return h("p", { class: "note warn" }, glyph("STOPPING"), h("span", null, withCode(text)));
}

/** What stands between backticks, in words of the command line, is code. */
function withCode(text) {
  return text.split("`").map((part, place) => (place % 2 ? h("code", null, part) : part));
}

/** A moment, as long ago as it is. */
export function moment(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  const date = new Date(milliseconds).toISOString();
  return h("time", { datetime: date, title: exactTime(milliseconds) }, ago(milliseconds, serverNow()));
}

/**
 * `columns` are `{name, number}` or texts; `rows` are `{key, cells}`. The first cell heads its row. On a phone each row
 * is a block of its own, with the names of its columns inside; the roles say that it is a table none the less.
 */
export function table(caption, columns, rows) {
  const heads = columns.map((each) => (typeof each === "string" ? { name: each } : each));
  const head = heads.map((each) =>
    h("th", { role: "columnheader", scope: "col", class: each.number ? "number" : null }, each.name),
  );
  const cell = (content, place) => {
    const { name, number } = heads[place];
    const properties = { class: number ? "number" : null, "data-name": name };
    return place === 0
      ? h("th", { role: "rowheader", scope: "row", ...properties }, content)
      : h("td", { role: "cell", ...properties }, h("div", null, content));
  };
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      { class: "list", role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      h(
        "tbody",
        { role: "rowgroup" },
        rows.map(({ key, cells }) => h("tr", { key, role: "row" }, cells.map(cell))),
      ),
    ),
  );
}

/** Figures of one thing: `[[name, value], …]`. */
export function figures(pairs) {
  return h(
    "dl",
    { class: "figures" },
    pairs.filter(Boolean).map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value))),
  );
}

/** A part of the whole, as a bar; `label` says of what. */
export function progress(label, share, text, look = "work") {
  const known = share !== null && Number.isFinite(share);
  return h(
    "div",
    {
      class: `progress ${look}${known ? "" : " unknown"}`,
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": "0",
      "aria-valuemax": "100",
      "aria-valuenow": known ? String(Math.floor(share * 100)) : null,
      "aria-valuetext": text,
      vars: { share: known ? String(Math.min(1, Math.max(0, share))) : "0" },
    },
    h("span"),
  );
}

/** A button for an action that has a name: while it is under way it cannot be asked for again. */
export function action(text, busy, onclick, look) {
  return h(
    "button",
    { type: "button", class: look, onclick, "aria-disabled": busy ? "true" : null },
    busy ? `${text}…` : text,
  );
}
