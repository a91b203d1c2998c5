// The box for a filter, which completes columns, operators and values: a combobox, all of it by the keyboard too.

import { path } from "./api.js";
import { h } from "./dom.js";
import { context, suggestions, wantsValues } from "./filter_text.js";
import { data } from "./resource.js";
import { choose, chosen } from "./store.js";

const BOX = "search-where";
const LIST = "search-where-list";
/** So many suggestions are shown at once. */
const SHOWN = 12;

const CLOSED = { text: "", caret: 0, open: false, active: -1 };
const now = () => chosen(BOX, CLOSED);
const set = (changed) => choose(BOX, { ...now(), ...changed });

/** The path of the values that are to be completed, or null. */
export function valuesNeeded(columns, entity) {
  const { text, caret, open } = now();
  if (!open) return null;
  const found = context(text.slice(0, caret));
  const column = columns.find((each) => each.name === found.column);
  return wantsValues(found, column) ? path("/api/values", { column: column.name, begin: found.begin, entity }) : null;
}

/** What completes the text of this moment: the place where it goes, and the suggestions. */
function offers(columns, entity) {
  const { text, caret, open } = now();
  const found = context(text.slice(0, caret));
  const needed = valuesNeeded(columns, entity);
  const values = (needed && data(needed)?.items) ?? [];
  return { from: found.from, offered: open ? suggestions(found, columns, values).slice(0, SHOWN) : [] };
}

/** `apply` is called with the filter that was written. */
export function filterBox({ where, columns, entity, apply }) {
  const { active } = now();
  const { offered } = offers(columns, entity);
  const shown = offered.length > 0;

  const look = ({ target }) =>
    set({ text: target.value, caret: target.selectionStart, open: document.activeElement === target, active: -1 });
  const take = (input, each) => {
    const { text, caret } = now();
    const before = text.slice(0, offers(columns, entity).from);
    const gap = /[^\s(]$/.test(before) && !/^[,)]/.test(each.insert) ? " " : "";
    const begun = before + gap + each.insert;
    input.value = begun + text.slice(caret).trimStart();
    input.setSelectionRange(begun.length, begun.length);
    look({ target: input });
  };
  // Keys may come faster than the page is drawn: what counts is the state, not what was drawn.
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !now().open) look(event);
    const { open, active, text } = now();
    const { offered } = offers(columns, entity);
    if (step && offered.length) {
      set({ active: (active + step + offered.length + (active < 0 && step < 0)) % offered.length });
    } else if (event.key === "Enter" && offered[active] && event.target.value === text) {
      take(event.target, offered[active]);
    } else if (event.key === "Escape" && open) set({ open: false });
    else if (!step) return;
    event.preventDefault();
  };
  const send = (event) => {
    event.preventDefault();
    set({ open: false });
    apply(new FormData(event.target).get("where").trim());
  };
  return h(
    "form",
    { class: "filter", onsubmit: send },
    h("label", { for: BOX }, "only where"),
    h(
      "div",
      { class: "combo" },
      h("input", {
        id: BOX,
        name: "where",
        type: "search",
        role: "combobox",
        autocomplete: "off",
        spellcheck: "false",
        maxlength: "4000",
        placeholder: hint(columns),
        "aria-autocomplete": "list",
        "aria-expanded": String(shown),
        "aria-controls": shown ? LIST : null,
        "aria-activedescendant": shown && active >= 0 ? `${LIST}-${active}` : null,
        oninput: look,
        onclick: look,
        onkeydown: keys,
        onkeyup: (event) => {
          if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) look(event);
        },
        onblur: () => set({ open: false }),
        drawn: (input) => {
          if (input.dataset.shown === where) return;
          input.value = input.dataset.shown = where;
        },
      }),
      shown
        ? h(
            "ul",
            { id: LIST, role: "listbox", "aria-label": "Suggestions" },
            offered.map((each, place) => option(each, place, place === active, take)),
          )
        : null,
    ),
    h("button", { type: "submit" }, "Apply"),
  );
}

function option(each, place, active, take) {
  return h(
    "li",
    {
      key: each.text,
      id: `${LIST}-${place}`,
      role: "option",
      "aria-selected": String(active),
      // Before the box loses the focus.
      onmousedown: (event) => {
        event.preventDefault();
        take(document.getElementById(BOX), each);
      },
    },
    h("span", null, each.text),
    each.hint ? h("span", { class: "soft" }, ` ${each.hint}`) : null,
  );
}

function hint(columns) {
  const named = columns.find((each) => each.counted);
  return named ? `such as ${named.name} ${named.type.endsWith("[]") ? "CONTAINS" : "="} …` : "such as title LIKE 'A%'";
}
