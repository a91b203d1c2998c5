// What stands around every view: name, search, ways, connection, scheme, and what the last action came to.

import { openDialog } from "./dialog.js";
import { h, svg } from "./dom.js";
import { data } from "./resource.js";
import { link } from "./route.js";
import { glyph } from "./states.js";
import { change } from "./store.js";
import { apply, theme, THEMES } from "./theme.js";

const WAYS = {
  jobs: "Jobs",
  status: "Status",
  search: "Search",
  failures: "Failures",
  wants: "Wants",
  workers: "Workers",
  queues: "Queues",
  configuration: "Configuration",
};
/** Where the ways lead that have none of their own. */
const UNDER = { partitions: "status" };

export function header(state) {
  return [brand(), searchBox(state), h("div", { class: "tools" }, connection(state), tokenButton(state), schemes())];
}

function brand() {
  const mark = svg(
    "svg",
    { viewBox: "0 0 24 24", class: "mark", "aria-hidden": "true" },
    [0, 1, 2].map((each) =>
      svg("rect", {
        x: 2 + each * 7,
        y: 14 - each * 6,
        width: 6,
        height: 6,
        rx: 1,
        class: each === 2 ? "fill-done" : "fill-ink",
      }),
    ),
  );
  return h(
    "a",
    { class: "brand", href: "#/jobs" },
    mark,
    h("b", null, "Instep"),
    h("span", { class: "soft" }, data("/api/project")?.name ?? ""),
  );
}

function searchBox(state) {
  const send = (event) => {
    event.preventDefault();
    const old = state.route.name === "search" ? Object.fromEntries(state.route.query) : {};
    location.hash = link("search", null, { ...old, q: new FormData(event.target).get("q").trim() });
  };
  return h(
    "form",
    { role: "search", onsubmit: send },
    h("label", { class: "unseen", for: "search" }, "Search the indexes"),
    h("input", {
      id: "search",
      name: "q",
      type: "search",
      placeholder: "Search the indexes",
      autocomplete: "off",
      "aria-keyshortcuts": "/",
      // What is searched for, also when one comes by a link; what is being written stays.
      drawn: (input) => {
        const query = state.route.name === "search" ? (state.route.query.get("q") ?? "") : "";
        if (input.dataset.shown === query) return;
        input.value = input.dataset.shown = query;
      },
    }),
  );
}

const CONNECTIONS = {
  live: ["COMPLETED", "live", "Changes are shown as they happen."],
  polling: ["STOPPING", "polling", "The live channel is away: the page asks every few seconds."],
  away: ["FAILED", "no server", "The server cannot be reached; the page keeps trying, and shows what it knew."],
};

function connection({ connection: name }) {
  const [shown, text, title] = CONNECTIONS[name];
  return h(
    "span",
    { class: "connection", title, role: "status" },
    glyph(shown),
    h("span", null, text),
    h("span", { class: "unseen" }, title),
  );
}

/** Where others can reach the server, nothing is read without the token. */
function tokenButton({ read }) {
  if (![...read.values()].some((each) => each.problem?.status === 401)) return null;
  return h("button", { type: "button", class: "primary", onclick: () => openDialog({ name: "token" }) }, "Token…");
}

function schemes() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  const turn = () => {
    apply(next);
    change();
  };
  const label = `Colours: ${theme()}. Change to ${next}`;
  return h(
    "button",
    { type: "button", class: "quiet icon", "aria-label": label, title: label, onclick: turn },
    svg(
      "svg",
      { viewBox: "0 0 16 16", class: "glyph", "aria-hidden": "true" },
      svg("circle", { cx: 8, cy: 8, r: 6, class: theme() === "dark" ? "fill" : "line" }),
      theme() === "system" ? svg("path", { d: "M8 2a6 6 0 0 1 0 12z", class: "fill" }) : null,
    ),
  );
}

export function navigation({ route }) {
  const here = UNDER[route.name] ?? route.name;
  const ways = Object.entries(WAYS).filter(([name]) => name !== "queues" || data("/api/project")?.queues.length !== 0);
  return h(
    "ul",
    null,
    ways.map(([name, text]) =>
      h("li", { key: name }, h("a", { href: link(name), "aria-current": here === name ? "page" : null }, text)),
    ),
  );
}

export function notice({ notice: said }) {
  if (!said) return null;
  const close = () => change((state) => void (state.notice = null));
  return h(
    "div",
    { class: `toast ${said.bad ? "bad" : "good"}` },
    glyph(said.bad ? "FAILED" : "COMPLETED"),
    h("p", null, said.text),
    h("button", { type: "button", class: "quiet", "aria-label": "Close this message", onclick: close }, "Close"),
  );
}
