"""Fingerprints: the parts of a transform; when one changes, the index is out of date."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

#: The part that says how documents are named, if by their path in the project.
NAMES: Final = "names"
IN_PROJECT: Final = "project"
#: The part that says where the target is: as text, without secrets.
TARGET: Final = "target"
#: The part that says what is searched by words, and in which language.
WORDS: Final = "words"
#: Parts of declared columns begin with this word; their names follow.
COLUMN: Final = "column"
#: The part that names the column of readers, if there is one.
READERS: Final = "readers"
#: The part that says which rows a table without a watermark has: it is of the source, and not declared.
ROWS: Final = "rows"


def column_part(name: str) -> str:
    return f"{COLUMN} {name}"


def column_fingerprint(kind: str, *rest: object) -> str:
    """The fingerprint of a column: its type, which filters depend on, and a digest of that and the rest."""
    return f"{kind} {digest([kind, *rest])}"


def column_type(fingerprint: str | None) -> str | None:
    """The type that such a fingerprint names; None if there is none."""
    return fingerprint.partition(" ")[0] if fingerprint and " " in fingerprint else None


def digest(value: Any) -> str:
    """Short, stable hash of plain data (16 hex characters)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def changed_parts(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """Names of the parts that differ, sorted; empty when nothing has to be rebuilt. A place that was not recorded is
    not known, and no other one.
    """
    parts = now.keys() | then.keys()
    known = parts if TARGET in now and TARGET in then else parts - {TARGET}
    return sorted(part for part in known if now.get(part) != then.get(part))


def change_text(part: str, now: Mapping[str, str], then: Mapping[str, str]) -> str:
    """The meaning of a changed part, as text."""
    if part == TARGET:
        return f"target moved: from {then[part]} to {now[part]}"
    if (part.startswith(f"{COLUMN} ") or part == READERS) and (part in now) != (part in then):
        gone = "are no longer" if part == READERS else "is no longer"
        new = "are new" if part == READERS else "is new"
        return f"{part} {new if part in now else f'{gone} declared'}"
    if part != NAMES:
        return f"{part} changed"
    by = "their path in the project" if part in now else "absolute paths"
    return f"documents are named by {by} now"
