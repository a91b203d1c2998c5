// Elements as values: a view returns what is to be seen, and `render` changes only what differs, so that focus,
// selection and scrolling stay. Data becomes text nodes and attributes; there is no way to hand in markup.

const SVG = "http://www.w3.org/2000/svg";
const SEEN = Symbol("what an element was made from");

/**
 * `h("button", {class: "quiet", onclick: save, key: id}, "Save")`. Children: values, arrays, null and false for none.
 * `drawn` is called with the element each time, once it is in the page; `vars` are variables for the style sheet.
 */
export function h(tag, properties, ...children) {
  return { tag, namespace: null, key: properties?.key, properties: properties ?? {}, children: flat(children) };
}

/** The same for a drawing; everything inside is one too. */
export function svg(tag, properties, ...children) {
  return { ...h(tag, properties, ...children), namespace: SVG };
}

/** What is to be done with elements once they are in the page. */
let pending = [];

/** Make the children of `parent` what `nodes` say. */
export function render(parent, ...nodes) {
  const focused = document.activeElement;
  patchChildren(parent, flat(nodes));
  const drawn = pending;
  pending = [];
  for (const [draw, element] of drawn) draw(element);
  // An element that was moved has lost the focus.
  if (focused?.isConnected && focused !== document.activeElement && focused !== document.body) {
    focused.focus({ preventScroll: true });
  }
}

function flat(children) {
  return children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false && each !== "");
}

function patchChildren(parent, children) {
  const old = [...parent.childNodes];
  const keyed = new Map(old.filter((each) => each[SEEN]?.key !== undefined).map((each) => [each[SEEN].key, each]));
  const rest = old.filter((each) => each[SEEN]?.key === undefined);
  let place = parent.firstChild;
  for (const child of children) {
    const found = take(child, keyed, rest);
    const element = patch(found, child);
    if (element === place) place = place.nextSibling;
    else parent.insertBefore(element, place);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

/** The element that was made from the same part of the view, if there is one. */
function take(child, keyed, rest) {
  if (child.key !== undefined) {
    const found = keyed.get(child.key);
    keyed.delete(child.key);
    return found?.[SEEN].tag === child.tag ? found : undefined;
  }
  const place = rest.findIndex((each) => each[SEEN]?.tag === child.tag);
  return place < 0 ? undefined : rest.splice(place, 1)[0];
}

function patch(found, child) {
  if (child.tag === undefined) return patchText(found, String(child));
  const element = found ?? create(child);
  patchProperties(element, element[SEEN]?.properties ?? {}, child.properties);
  element[SEEN] = child;
  patchChildren(element, child.children);
  // Options must be there before one of them can be chosen.
  if ("value" in child.properties && element.value !== child.properties.value) element.value = child.properties.value;
  if (child.properties.drawn) pending.push([child.properties.drawn, element]);
  return element;
}

function patchText(found, text) {
  if (found?.nodeType !== Node.TEXT_NODE) return document.createTextNode(text);
  if (found.data !== text) found.data = text;
  return found;
}

function create(child) {
  return child.namespace ? document.createElementNS(child.namespace, child.tag) : document.createElement(child.tag);
}

function patchProperties(element, before, after) {
  for (const name of Object.keys(before)) if (!(name in after)) set(element, name, null);
  for (const [name, value] of Object.entries(after)) if (before[name] !== value) set(element, name, value);
}

function set(element, name, value) {
  if (name === "key" || name === "drawn" || name === "value") return;
  if (name.startsWith("on")) element[name] = value;
  else if (name === "vars") setVariables(element, value ?? {});
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : value);
}

/** Variables for the style sheet: the page's policy allows no styles in attributes. */
function setVariables(element, variables) {
  for (const [name, value] of Object.entries(variables)) element.style.setProperty(`--${name}`, value);
}
