// The server's routes. Answers are JSON; what went wrong comes as `application/problem+json` and is thrown.

import { token } from "./token.js";

class Problem extends Error {
  /** `status` is 0 when no answer came. */
  constructor(status, title, hint, position) {
    super(title);
    this.status = status;
    this.hint = hint;
    /** Of a filter: the number of the character where it is wrong. */
    this.position = position;
  }

  /** What is wrong and what to do about it, in sentences. */
  get text() {
    return [this.message, this.hint].filter(Boolean).map(sentence).join(" ");
  }
}

/** Longer than this and the server is taken to be away. */
const TIMEOUT_MS = 20_000;

export function get(path) {
  return ask("GET", path);
}

export function post(path, body) {
  return ask("POST", path, body);
}

async function ask(method, path, body) {
  const headers = { Accept: "application/json" };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    response = await fetch(path, { method, headers, signal, cache: "no-store", body: body && JSON.stringify(body) });
  } catch (error) {
    throw new Problem(
      0,
      error.name === "TimeoutError" ? "The server does not answer." : "The server cannot be reached.",
    );
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw problemOf(response.status, answer);
  return answer;
}

function problemOf(status, answer) {
  if (status === 401) return new Problem(status, "This server shows and changes nothing without its token.");
  const text = answer?.detail ?? answer?.title ?? `The server answered ${status}.`;
  return new Problem(status, typeof text === "string" ? text : JSON.stringify(text), answer?.hint, answer?.position);
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1) + (/[.!?:]$/.test(text) ? "" : ".");
}

/** `path("/api/search", {q: "a b", facet: ["x", "y"]})`: what is empty is left out, and a list is repeated. */
export function path(base, query) {
  const used = Object.entries(query)
    .flatMap(([name, value]) => [value].flat().map((each) => [name, each]))
    .filter(([, value]) => value !== null && value !== undefined && value !== "");
  return used.length ? `${base}?${new URLSearchParams(used)}` : base;
}
