// One dialog at a time: the browser's own, which keeps the focus inside and gives it back.

import { h } from "./dom.js";
import { change } from "./store.js";

export function openDialog(dialog) {
  change((state) => void (state.dialog = dialog));
}

export function closeDialog() {
  change((state) => void (state.dialog = null));
}

/** `title` names it; `send(form)` is called with what was filled in. */
export function dialogView(title, send, buttons, ...content) {
  const submit = (event) => {
    event.preventDefault();
    send(new FormData(event.target));
  };
  const shown = (element) => element.open || element.showModal();
  return h(
    "dialog",
    { key: title, "aria-labelledby": "dialog-title", drawn: shown, onclose: closeDialog },
    h(
      "form",
      { onsubmit: submit, novalidate: true },
      h("h2", { id: "dialog-title" }, title),
      content,
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: closeDialog }, "Close"),
        buttons,
      ),
    ),
  );
}

/** A field with its label; `hint` says what it is for. */
export function field(id, label, control, hint) {
  const described = hint ? `${id}-hint` : null;
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    { ...control, properties: { ...control.properties, id, name: id, "aria-describedby": described } },
    hint ? h("p", { id: described, class: "hint" }, hint) : null,
  );
}
