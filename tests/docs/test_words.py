"""Docstrings say what a thing is or does, in their first words."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "instep"
#: A docstring that begins with one of these is a riddle until its end. `Whether` says what a predicate returns.
RIDDLES = ("What", "Of", "How", "Which", "Who", "Whoever", "Whose", "Where", "When", "Why", "That")


def test_no_docstring_begins_with_a_question() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            value = node.value if isinstance(node, ast.Expr) else None
            text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
            if text.partition(" ")[0] in RIDDLES:
                found.append(f"{path.relative_to(SOURCE)}:{value.lineno if value else 0}: {text.splitlines()[0]}")
    assert found == []
