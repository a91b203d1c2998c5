"""A mutant: the product with one slip in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path("src/instep")


class Stale(Exception):
    """The text that a mutant replaces is not there, or is there more than once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`breaks` says what goes wrong, and names it. `text` is to stand exactly once in `file` (under `src/instep`).
    `tests` are those that are to notice it: files, folders or single tests.
    """

    breaks: str
    file: str
    text: str
    by: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        return SOURCE / self.file

    def of(self, source: str) -> str:
        """The file with the slip."""
        found = source.count(self.text)
        if found != 1:
            where = "is not there any more" if not found else f"is there {found} times"
            raise Stale(f"{self.path}: {self.text!r} {where}")
        return source.replace(self.text, self.by)

    def demand_text(self, root: Path) -> None:
        path = root / self.path
        if not path.is_file():
            raise Stale(f"{self.path} is not there any more")
        self.of(path.read_text(encoding="utf-8"))
