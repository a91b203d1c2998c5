// Asking for a job, as `POST /api/jobs` has it.

import { act, isBusy } from "./act.js";
import { closeDialog, dialogView, openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { data } from "./resource.js";
import { link } from "./route.js";

export function runButton() {
  return h("button", { type: "button", class: "primary", onclick: () => openDialog({ name: "run" }) }, "Run…");
}

export function runDialog() {
  const names = (data("/api/project")?.entities ?? []).map((each) => each.name);
  const send = async (form) => {
    // No entity would be all of them.
    if (!form.has("entities")) return document.querySelector("[name=entities]")?.focus();
    const body = {
      entities: form.getAll("entities"),
      recreateIndex: form.has("recreateIndex"),
      useDistributedIndexing: form.has("useDistributedIndexing"),
    };
    closeDialog();
    await act("run", "/api/jobs", body, said);
  };
  return dialogView(
    "Run",
    send,
    h("button", { type: "submit", class: "primary", "aria-disabled": isBusy("run") ? "true" : null }, "Run"),
    h(
      "fieldset",
      null,
      h("legend", null, "Entities"),
      h(
        "div",
        { class: "checks" },
        names.map((name) => check("entities", name, name, true)),
      ),
      names.length > 1 ? h("div", { class: "aside" }, setAll("All", true), setAll("None", false)) : null,
    ),
    check("recreateIndex", "on", "Rebuild, beside the served index", false),
    check("useDistributedIndexing", "on", "Leave it to the workers that are there", false),
  );
}

function check(name, value, text, checked) {
  return h(
    "label",
    { key: `${name} ${value}`, class: "check" },
    h("input", { type: "checkbox", name, value, checked }),
    h("span", null, text),
  );
}

function setAll(text, checked) {
  const set = (event) => {
    for (const each of event.target.form.querySelectorAll("[name=entities]")) each.checked = checked;
  };
  return h("button", { type: "button", class: "quiet", onclick: set }, text);
}

function said({ job, worker }) {
  location.hash = link("jobs", job);
  return worker ? "It is asked for, and begins now." : "It is asked for; a worker takes it up.";
}
