// The project's settings as they hold, defaults included. Secrets never come here.

import { h } from "./dom.js";
import { moreButton, pagePaths, pages } from "./pages.js";
import { empty, loading, problemNote, section, table, view } from "./pieces.js";
import { choose, chosen } from "./store.js";

const PATH = "/api/configuration?limit=500";

export function needs() {
  return pagePaths(PATH).map((path) => ({ path, every: 60_000 }));
}

export function configurationView() {
  const found = pages(PATH);
  const all = chosen("all settings", false);
  const turn = () => choose("all settings", !all);
  const button = h("button", { type: "button", "aria-pressed": String(all), onclick: turn }, "Defaults too");
  const shown = found.items.filter((each) => all || each.declared);
  return view(
    "Configuration",
    button,
    h("p", { class: "soft" }, "As instep.yaml is understood. What came from the environment is shown as ${NAME}, a secret as ***."),
    problemNote(found.problem),
    found.loaded ? parts(shown) : found.problem ? null : loading(),
    moreButton(PATH, found),
  );
}

/** A table for each part of the project: an entity, a target, Spark. */
function parts(settings) {
  if (!settings.length) return empty("Nothing is declared.");
  const groups = new Map();
  for (const each of settings) {
    const names = each.path.split(".");
    const deep = ["entities", "targets", "queues"].includes(names[0]) && names.length > 2 ? 2 : names.length > 1 ? 1 : 0;
    const title = names.slice(0, deep).join(" ") || "project";
    groups.set(title, [...(groups.get(title) ?? []), { ...each, name: names.slice(deep).join(".") }]);
  }
  return [...groups].map(([title, items]) =>
    section(
      title,
      null,
      table(
        title,
        ["setting", "value"],
        items.map((each) => ({
          key: each.path,
          cells: [
            h("code", { class: "uri" }, each.name),
            h("span", { class: each.declared ? "reason" : "reason soft" }, each.value),
          ],
        })),
      ),
    ),
  );
}
