// Starts the page: the token, the address, the live channel; and draws the state whenever it changes.

import { announceIn } from "./announcer.js";
import * as configuration from "./configuration.js";
import { render } from "./dom.js";
import * as failures from "./failures.js";
import * as job from "./job.js";
import * as jobs from "./jobs.js";
import { connect, hurry } from "./live.js";
import * as partition from "./partition.js";
import { empty, view, warning } from "./pieces.js";
import * as queues from "./queues.js";
import { need, onReturn, refresh } from "./resource.js";
import { follow } from "./route.js";
import { runDialog } from "./run.js";
import * as search from "./search.js";
import { header, navigation, notice } from "./shell.js";
import * as status from "./status.js";
import { change, onChange, state } from "./store.js";
import { takeFromAddress } from "./token.js";
import { tokenDialog } from "./tokens.js";
import * as wants from "./wants.js";
import * as workers from "./workers.js";

const VIEWS = {
  jobs: ({ argument }) => (argument ? [job.needs, job.jobView] : [jobs.needs, jobs.jobsView]),
  status: () => [status.needs, status.statusView],
  partitions: () => [partition.needs, partition.partitionView],
  failures: () => [failures.needs, failures.failuresView],
  wants: () => [wants.needs, wants.wantsView],
  workers: () => [workers.needs, workers.workersView],
  queues: () => [queues.needs, queues.queuesView],
  search: () => [search.needs, search.searchView],
  configuration: () => [configuration.needs, configuration.configurationView],
};
const NOWHERE = () => [() => [], () => view("Nothing is here", null, empty("This address leads nowhere."))];
const DIALOGS = { token: tokenDialog, run: runDialog };
const PROJECT = { path: "/api/project", every: 300_000 };

const places = Object.fromEntries(
  ["header", "ways", "main", "notice", "dialog"].map((id) => [id, document.getElementById(id)]),
);
let shown = null;

function draw() {
  const [needs, show] = (VIEWS[state.route.name] ?? NOWHERE)(state.route);
  need([PROJECT, ...needs(state.route)]);
  render(places.header, header(state));
  render(places.ways, navigation(state));
  render(places.main, state.trouble ? warning(`Jobs cannot be seen now: ${state.trouble}`) : null, show(state.route));
  render(places.notice, notice(state));
  render(places.dialog, state.dialog ? DIALOGS[state.dialog.name](state.dialog) : null);
  arrive();
}

/** Coming to another view, one begins at its heading; at the first view, where the browser begins. */
function arrive() {
  const here = `${state.route.name}/${state.route.argument}`;
  if (here === shown) return;
  const title = document.getElementById("title");
  document.title = `${title.textContent} · Instep`;
  if (shown !== null) {
    scrollTo(0, 0);
    if (!document.activeElement?.matches("#search")) title.focus({ preventScroll: true });
  }
  shown = here;
}

function onKey(event) {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  document.getElementById("search")?.focus(); // It is not there before the first frame.
}

function tick() {
  if (document.hidden) return;
  change(() => void (state.now = Date.now()));
  refresh();
}

/** The address belongs to the views, so the way past the ways is walked here. */
function skip(event) {
  event.preventDefault();
  places.main.focus();
}

takeFromAddress();
announceIn(document.getElementById("announcer"));
onChange(draw);
follow();
onReturn(hurry);
connect();
setInterval(tick, 1_000);
addEventListener("keydown", onKey);
document.querySelector(".skip").addEventListener("click", skip);
addEventListener("online", hurry);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  hurry();
  tick();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => change());
new ResizeObserver(([{ contentRect }]) => change(() => void (state.width = Math.floor(contentRect.width)))).observe(
  places.main,
);
