"""A lineage as text, for Graphviz, and as a page of HTML with a drawing (no scripts, nothing loaded from anywhere)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from html import escape

from instep.answers.lineage import Edge, Lineage, Node
from instep.domain.lineage import Link
from instep.telemetry.texts import id_text, moment_text, visible

_WIDTH, _HEIGHT, _ACROSS, _DOWN = 290, 64, 350, 88

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #1b1f24; background: #fff }
table { border-collapse: collapse } th, td { text-align: left; padding: .3rem .8rem .3rem 0; vertical-align: top }
svg { max-width: 100%; height: auto } rect { fill: #f4f6f8; stroke: #57606a } .first { stroke-width: 3 }
.gone { stroke-dasharray: 4 } line { stroke: #57606a } .previous { stroke-dasharray: 4 } code { font-size: 13px }
@media (prefers-color-scheme: dark) { body { color: #e6edf3; background: #0d1117 } rect { fill: #161b22 }
  text { fill: #e6edf3 } }
""".strip()


def as_text(found: Lineage) -> Iterator[str]:
    """A tree: below each instance those that it was made from. One that comes up again is not repeated."""
    nodes = {each.uuid: each for each in found.nodes}
    links: dict[str, list[Edge]] = defaultdict(list)
    for edge in found.edges:
        links[edge.from_].append(edge)
    seen: set[str] = set()
    pending = [(found.nodes[0].uuid, 0, "")]
    while pending:
        uuid, depth, how = pending.pop()
        again = uuid in seen and bool(links[uuid])
        yield f"{'  ' * depth}{how}{': '.join(label(nodes[uuid]))}{' (see above)' if again else ''}"
        if again or how == _IN_PLACE:
            continue
        seen.add(uuid)
        pending += [
            (edge.to, depth + 1, _IN_PLACE if edge.link is Link.PREVIOUS else _FROM) for edge in reversed(links[uuid])
        ]
    for user in found.users:
        yield visible(f"used by {user.ref} {id_text(user.uuid)}: {user.state}")


_IN_PLACE, _FROM = "in place of ", "from "


def label(node: Node) -> tuple[str, str]:
    """An instance in two short lines: which, and how it is."""
    each = node.instance
    if each is None:
        return f"{id_text(node.uuid)}", "collected"
    generation = f" ({each.generation})" if each.generation else ""
    facts = [f"{node.state}{', left' if each.left and each.usable else ''}", f"made for: {each.reason}"]
    if each.watermark is not None:
        facts.append(f"as of {moment_text(each.watermark)}")
    return visible(f"{each.ref}{generation} {id_text(each.uuid)}"), visible(", ".join(facts))


def as_dot(found: Lineage) -> Iterator[str]:
    yield "digraph lineage {"
    yield "  rankdir=LR; node [shape=box];"
    for node in found.nodes:
        style = "" if node.instance is not None else ", style=dashed"
        yield f"  {_quoted(node.uuid)} [label={_quoted(chr(10).join(label(node)))}{style}];"
    for edge in found.edges:
        style = ' [style=dashed, label="in place of"]' if edge.link is Link.PREVIOUS else ""
        yield f"  {_quoted(edge.from_)} -> {_quoted(edge.to)}{style};"
    yield "}"


def _quoted(text: str) -> str:
    # In DOT as in JSON: quotes and backslashes are escaped, and \n is a new line. All else may stand as it is.
    return json.dumps(text, ensure_ascii=False)


def as_html(found: Lineage) -> Iterator[str]:
    first = found.nodes[0]
    title = escape(f"Lineage of {label(first)[0]}")
    yield f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>'
    yield f"<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<h1>{title}</h1>"
    if found.at is not None:
        yield f"<p>As it was known at {escape(moment_text(found.at))}.</p>"
    yield from _drawing(found)
    yield "<table>\n<tr><th>instance</th><th>how it is</th><th>job</th><th>revision</th></tr>"
    for node in found.nodes:
        each = node.instance
        cells = [*label(node), (each.job if each else None) or "-", (each.revision if each else None) or "-"]
        cells[0] = f"{each.ref if each else 'collected'} {node.uuid}"
        yield f"<tr>{''.join(f'<td>{escape(visible(cell))}</td>' for cell in cells)}</tr>"
    yield "</table>"
    if found.users:
        users = ", ".join(f"{each.ref} {each.uuid}" for each in found.users)
        yield f"<p>Used by {escape(visible(users))}.</p>"
    yield "</body>\n</html>"


def _drawing(found: Lineage) -> Iterator[str]:
    """Boxes in columns by their distance from the first, which is the order of the nodes."""
    places = _places(found)
    width = max(x for x, _ in places.values()) + _WIDTH + 4
    height = max(y for _, y in places.values()) + _HEIGHT + 4
    yield f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    for edge in found.edges:
        (x, y), (u, v) = places[edge.from_], places[edge.to]
        right, left = (x + _WIDTH, u) if u > x else (x, u + _WIDTH)
        line = f'x1="{right}" y1="{y + _HEIGHT // 2}" x2="{left}" y2="{v + _HEIGHT // 2}"'
        yield f'<line class="{edge.link}" {line}/>'
    for number, node in enumerate(found.nodes):
        x, y = places[node.uuid]
        kind = "first" if number == 0 else "gone" if node.instance is None else "other"
        yield f'<rect class="{kind}" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        name, state = label(node)
        yield f'<text x="{x + 12}" y="{y + 27}" font-size="14">{escape(_short(name))}</text>'
        yield f'<text x="{x + 12}" y="{y + 48}" font-size="12">{escape(_short(state, 44))}</text>'
    yield "</svg>"


def _places(found: Lineage) -> dict[str, tuple[int, int]]:
    depths = {found.nodes[0].uuid: 0}
    # Nodes come in order of their distance, and so do the edges that lead to them.
    for edge in found.edges:
        depths.setdefault(edge.to, depths[edge.from_] + 1)
    rows: dict[int, int] = defaultdict(int)
    places = {}
    for node in found.nodes:
        depth = depths[node.uuid]
        places[node.uuid] = (2 + depth * _ACROSS, 2 + rows[depth] * _DOWN)
        rows[depth] += 1
    return places


def _short(text: str, most: int = 32) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
