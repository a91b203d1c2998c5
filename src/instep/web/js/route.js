// Addresses within the page: `#/jobs`, `#/jobs/<id>`, `#/search?q=…`.

import { change } from "./store.js";

export function parse(hash) {
  const [way, query] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = way.split("/");
  return {
    name: name || "jobs",
    argument: rest.length ? decode(rest.join("/")) : null,
    query: new URLSearchParams(query),
  };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function link(name, argument, query) {
  const way = argument ? `#/${name}/${encodeURIComponent(argument)}` : `#/${name}`;
  const used = Object.entries(query ?? {}).filter(([, value]) => value);
  return used.length ? `${way}?${new URLSearchParams(used)}` : way;
}

export function follow() {
  const read = () => change((state) => void (state.route = parse(location.hash)));
  addEventListener("hashchange", read);
  read();
}
