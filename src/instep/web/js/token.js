// The token that changes need. `instep serve` prints an address that ends in `#token=…`; it is read once, kept for
// this tab, and removed from the address, so that it is in no history and no copied link.

const NAME = "instep-token";

export function takeFromAddress() {
  const match = /(?:^#|&)token=([^&]+)/.exec(location.hash);
  if (!match) return;
  keep(decodeURIComponent(match[1]));
  history.replaceState(null, "", `${location.pathname}${location.search}#/jobs`);
}

export function token() {
  return sessionStorage.getItem(NAME);
}

export function keep(value) {
  sessionStorage.setItem(NAME, value.trim());
}

export function forget() {
  sessionStorage.removeItem(NAME);
}
