"""Docstrings say what a thing is or does, in their first words; code, texts and docs are in plain sentences."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "instep"
#: Turns of phrase that a reader whose first language is not English would have to look up.
STYLISED = re.compile(
    r"\b(is|was|be) had\b|\blet go of\b|\bmakes? do\b|\bof its own accord\b|\bleads? nowhere\b|\bplanned anew\b|"
    r"\b(stays|told) so\b|\b(heed|whence|thence|shall|whoever|somebody|thereof)\b",
    re.IGNORECASE,
)
#: Characters in a line of prose.
LONGEST = 120
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


def test_sentences_are_plain() -> None:
    pages = [path for path in ROOT.glob("docs/**/*.md") if path.parent.name != "adr"]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted([*SOURCE.rglob("*.py"), *pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if STYLISED.search(line)
    ]
    assert found == []


def test_lines_of_prose_are_not_too_long() -> None:
    """Tables and blocks of code are as long as they have to be."""
    found = []
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]):
        text = re.sub(
            r"^( *)```.*?^\1```", lambda block: "\n" * block[0].count("\n"), path.read_text(), flags=re.S | re.M
        )
        found += [
            f"{path.relative_to(ROOT)}:{number}"
            for number, line in enumerate(text.splitlines(), 1)
            if len(line) > LONGEST and not line.startswith(("|", "    "))
        ]
    assert found == []
