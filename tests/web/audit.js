// What is wrong with the page for somebody: asked by test_page.py, in the page.

const CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex='0']";
const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
const seen = new Set();

/** What changes with the size or the address is drawn in a frame that follows on one that has seen it. */
function drawn(frames = 3) {
  return new Promise(requestAnimationFrame).then(() => (frames > 1 ? drawn(frames - 1) : null));
}

/** To a view, which is there when this ends; what it shows may still be read. */
function visit(way) {
  if (location.hash === `#${way}`) return drawn();
  const left = new Promise((done) => addEventListener("hashchange", done, { once: true }));
  location.hash = way;
  return left.then(() => drawn());
}

/** How many controls can be seen. */
function controls() {
  return [...document.querySelectorAll(CONTROLS)].filter((each) => shown(each) && each.tabIndex >= 0).length;
}

/** Whether the element that has the focus is another than before; it shows that it has it. */
function notice() {
  const element = document.activeElement;
  if (element === document.body || seen.has(element)) return false;
  seen.add(element);
  return true;
}

function audit() {
  const root = document.documentElement;
  const found = [];
  if (root.scrollWidth > innerWidth) found.push(`it is ${root.scrollWidth} wide`);
  if (document.querySelectorAll("h1").length !== 1) found.push("not one heading");
  for (const each of document.querySelectorAll(CONTROLS))
    if (shown(each) && !nameOf(each)) found.push(`no name: ${each.outerHTML.slice(0, 120)}`);
  return found.concat(pale());
}

function nameOf(element) {
  const labelled = element.getAttribute("aria-labelledby");
  const by = labelled ? document.getElementById(labelled)?.textContent : "";
  const labels = [...(element.labels ?? [])].map((each) => each.textContent).join(" ");
  return (element.getAttribute("aria-label") || by || labels || element.textContent).trim();
}

/** Texts with less contrast than AA asks for. */
function pale() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !shown(element) || element.closest(".unseen, .skip, noscript, script"))
      continue;
    const style = getComputedStyle(element);
    const ink = colour(element instanceof SVGElement ? style.fill : style.color);
    const contrast = ratio(ink, ground(element));
    if (contrast < 4.5) found.add(`contrast ${contrast.toFixed(2)}: ${element.outerHTML.slice(0, 120)}`);
  }
  return [...found];
}

/** The colour behind an element: of the nearest that has one. */
function ground(element) {
  if (element instanceof SVGElement) {
    const box = element.closest("a, g")?.querySelector(".box");
    if (box) return colour(getComputedStyle(box).fill);
  }
  for (let each = element; each; each = each.parentElement) {
    const [red, green, blue, alpha] = colour(getComputedStyle(each).backgroundColor);
    if (alpha > 0.99) return [red, green, blue];
  }
  return [255, 255, 255];
}

const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function colour(text) {
  brush.clearRect(0, 0, 1, 1);
  brush.fillStyle = text;
  brush.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = brush.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, alpha / 255];
}

function ratio(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((left, right) => right - left);
  return (high + 0.05) / (low + 0.05);
}

function luminance([red, green, blue]) {
  const part = (value) => (value <= 10.3 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
}

Object.assign(globalThis, { audit, controls, drawn, notice, seen, visit });
