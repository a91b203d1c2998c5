// One dialog at a time: the browser's own, which keeps the focus inside and gives it back.

import { h } from "./dom.js";
import { change, state } from "./store.js";

export function openDialog(dialog) {
  change(() => void (state.dialog = dialog));
}

/** The browser gives the focus back to where it was, and says so by an event. */
export function closeDialog() {
  document.querySelector("dialog[open]")?.close();
  change(() => void (state.dialog = null));
}

/** `title` names it; `send(form)` is called with what was filled in. */
export function dialogView(title, send, buttons, ...content) {
  const submit = (event) => {
    event.preventDefault();
    send(new FormData(event.target));
  };
  const shown = (element) => element.open || element.showModal();
  const mine = state.dialog;
  // The event comes later: another dialog may be open by then.
  const onclose = () => change(() => void (state.dialog = state.dialog === mine ? null : state.dialog));
  return h(
    "dialog",
    { key: title, "aria-labelledby": "dialog-title", drawn: shown, onclose },
    h(
      "form",
      { onsubmit: submit, novalidate: true },
      h("h2", { id: "dialog-title" }, title),
      content,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: closeDialog }, "Close"), buttons),
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
