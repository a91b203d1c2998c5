"""All blocks of a page of the documentation, in order, with what its source says of those that are not run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: Of these nothing can be run: drawings, and what programs print. Drawings have tests of their own.
SHOWN: Final = ("text", "mermaid")

_BLOCK: Final = re.compile(
    r"^(?:[ ]*<!-- (?P<how>not run|run by): (?P<reason>[^>]+?) -->\n)?(?P<indent> *)```(?P<language>\w*)[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_PROMPT: Final = re.compile(r"^(?:server-\d)?\$ ")


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    #: Why it is not run as all others are.
    reason: str | None = None
    #: A test of its own, by its path, that runs it.
    test: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language})"


@dataclass(frozen=True, slots=True)
class Command:
    """A line after a prompt, with what the page shows of its answer."""

    text: str
    answer: str


def pages() -> list[str]:
    """README and all pages, by their paths."""
    return ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]


def blocks_of(page: str) -> list[Block]:
    """Those that can be run."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = (
        Block(page, text.count("\n", 0, each.start()) + 1, each["language"], each["text"], **_said(each))
        for each in _BLOCK.finditer(text)
    )
    return [each for each in found if each.language not in SHOWN]


def _said(found: re.Match[str]) -> dict[str, str]:
    return {{"not run": "reason", "run by": "test"}[found["how"]]: found["reason"]} if found["how"] else {}


def commands_of(block: Block) -> list[Command]:
    """Each with the lines up to the next prompt; a quotation and a backslash go on in the next line."""
    said: list[Command] = []
    for part in re.split(r"^(?=(?:server-\d)?\$ )", block.text, flags=re.MULTILINE):
        if not part:
            continue
        assert _PROMPT.match(part), f"{block}: a block begins with a prompt"
        command, *answer = part.splitlines()
        while answer and (command.endswith("\\") or command.count("'") % 2):
            command += "\n" + answer.pop(0)
        said.append(Command(_PROMPT.sub("", command), "\n".join(answer)))
    return said
