// What is said to screen readers without being asked for: changes of state at once, progress now and then.

const PROGRESS_MS = 30_000;
let place = null;
let last = 0;

export function announceIn(element) {
  place = element;
}

export function announce(text) {
  if (place && text && place.textContent !== text) place.textContent = text;
}

export function announceProgress(text) {
  if (Date.now() - last < PROGRESS_MS) return;
  last = Date.now();
  announce(text);
}
