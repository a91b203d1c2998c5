"""No module needs, by way of others, one that needs it: not even for types, nor within a function."""

from __future__ import annotations

import ast
from collections.abc import Collection
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def test_imports_make_no_circles() -> None:
    modules = {_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}
    graph = {name: _imported(tree, modules.keys()) - {name} for name, tree in modules.items()}
    # Raises `CycleError` with the modules of a circle.
    assert [*TopologicalSorter(graph).static_order()]


def _name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.Module, modules: Collection[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                module = f"{node.module}.{each.name}"
                found.add(module if module in modules else node.module)
        elif isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
    return {each for each in found if each in modules}
