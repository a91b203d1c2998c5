// One partition: the instances that were built of it, where the one that was picked comes from, and its buckets.

import { bucketsSection } from "./buckets.js";
import { h } from "./dom.js";
import { durationsPath, durationsSection } from "./durations.js";
import { count, reference, shortId } from "./format.js";
import { lineageSection } from "./lineage.js";
import { figures, loading, moment, problemNote, section, view } from "./pieces.js";
import { data, resource } from "./resource.js";
import { link } from "./route.js";
import { chip, instanceState } from "./states.js";
import { chosen } from "./store.js";
import { timeline } from "./timeline.js";

const historyPath = (ref) => `/api/partitions/${encodeURIComponent(ref)}/history`;
const lineagePath = (wanted) => `/api/partitions/${encodeURIComponent(wanted)}/lineage`;
const bucketsPath = (ref) => `/api/buckets/${encodeURIComponent(ref.split("@")[0])}`;

/** The instance that was picked; the canonical one when none was. */
function picked(ref) {
  return chosen(`instance ${ref}`);
}

function hasBuckets(ref) {
  const entity = (data("/api/project")?.entities ?? []).find((each) => each.ref === ref);
  return entity?.kind === "documents";
}

export function needs({ argument: ref }) {
  const built = data(historyPath(ref))?.items.length;
  const paths = [
    historyPath(ref),
    built ? lineagePath(picked(ref) ?? ref) : null,
    built && hasBuckets(ref) ? bucketsPath(ref) : null,
  ];
  return [...paths, durationsPath(ref)].filter(Boolean).map((path) => ({ path, every: 15_000, live: true }));
}

export function partitionView({ argument: ref }) {
  const { data: history, problem } = resource(historyPath(ref));
  const current = history?.items.find((each) => each.canonical);
  return view(
    reference(ref),
    current ? chip(current.state) : null,
    problemNote(problem),
    history ? timeline(ref, history.items) : problem ? null : loading(),
    history ? details(history.items.find((each) => each.uuid === picked(ref)) ?? current) : null,
    durationsSection(ref),
    history?.items.length ? lineageSection(resource(lineagePath(picked(ref) ?? ref))) : null,
    history?.items.length && hasBuckets(ref) ? bucketsSection(resource(bucketsPath(ref))) : null,
  );
}

function details(each) {
  if (!each) return null;
  const { counts } = each;
  return section(
    `Instance ${shortId(each.uuid)}`,
    chip(instanceState(each)),
    figures([
      ["made for", each.reason],
      each.by ? ["by", each.by] : null,
      each.job ? ["job", h("a", { href: link("jobs", each.job) }, h("code", null, shortId(each.job)))] : null,
      each.refreshes ? ["refreshes", count(each.refreshes)] : null,
      each.refreshed_by
        ? ["last by", h("a", { href: link("jobs", each.refreshed_by) }, h("code", null, shortId(each.refreshed_by)))]
        : null,
      ["made", moment(each.created_at)],
      each.live_at ? ["live", moment(each.live_at)] : null,
      each.watermark ? ["complete up to", moment(each.watermark)] : null,
      each.ended_at ? ["ended", [moment(each.ended_at), each.ended ? `, ${each.ended}` : ""]] : null,
      counts ? ["last job wrote", count(counts.written)] : null,
      counts ? ["last job failed", count(counts.failed)] : null,
      each.physical ? ["index", h("code", null, each.physical)] : null,
      each.revision ? ["revision", h("code", null, shortId(each.revision))] : null,
    ]),
    each.error ? h("p", { class: "error" }, each.error) : null,
  );
}
