"""Each error that docs/troubleshooting.md quotes is a text of the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^### `(.*)`$", PAGE, re.MULTILINE)


@cache
def _texts() -> str:
    """All texts of the sources, with `…` for what is put in; one a line."""
    nodes = (
        node
        for path in (ROOT / "src" / "instep").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    return "\n".join(_text(node).replace("\n", " ") for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "…"


def test_the_page_quotes_errors() -> None:
    assert len(QUOTED) > 20


@pytest.mark.parametrize("quoted", QUOTED)
def test_the_code_can_say_what_is_quoted(quoted: str) -> None:
    assert quoted in _texts()
