// The dialog that asks for the token.

import { closeDialog, dialogView, field } from "./dialog.js";
import { h } from "./dom.js";
import { hurry } from "./live.js";
import { refreshNow } from "./resource.js";
import { change } from "./store.js";
import { keep } from "./token.js";

export function tokenDialog({ again, why }) {
  const send = (form) => {
    const given = form.get("token").trim();
    if (!given) return document.getElementById("token")?.focus();
    keep(given);
    closeDialog();
    change();
    refreshNow();
    hurry();
    again?.();
  };
  const input = h("input", { type: "password", autocomplete: "off", spellcheck: "false", autofocus: true });
  return dialogView(
    "Token",
    send,
    h("button", { type: "submit", class: "primary" }, "Use it"),
    why ? h("p", { class: "bad", role: "alert" }, why) : null,
    h(
      "p",
      null,
      "Changes need the token of the server. ",
      h("code", null, "instep serve"),
      " prints it, in the address that it starts with. It is kept for this tab only.",
    ),
    field("token", "Token", input),
  );
}
