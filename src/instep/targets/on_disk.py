"""Files of targets in this process that tell, without their libraries, whether an index is there and served.

To load a library takes longer than a run with nothing to do. A layout that is not known tells as much as its folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def is_there(kind: str, place: Path, physical: str, aliases: Sequence[str]) -> bool:
    """Whether an index and these aliases are in a target of this type, as far as files tell."""
    match kind:
        case "lance":
            return (place / f"{physical}.lance").exists() and all(
                any(place.glob(f"{alias}.alias-*.json")) for alias in aliases
            )
        case "qdrant":
            return (place / physical).exists() and all((place / alias).is_symlink() for alias in aliases)
        case "milvus" if (place / "collections").is_dir():
            return _in_milvus_lite(place, physical, aliases)
        case "clickhouse":
            return _in_clickhouse(place, physical, aliases)
        case _:
            return place.exists()


def _in_milvus_lite(place: Path, physical: str, aliases: Sequence[str]) -> bool:
    from instep.targets.milvus.location import collection

    shown: object = None
    with suppress(OSError, ValueError):
        shown = json.loads((place / "aliases.json").read_bytes())
    names = shown if isinstance(shown, dict) else {}
    made = (place / "collections" / collection(physical)).is_dir()
    return made and all(collection(each) in names for each in aliases)


def _in_clickhouse(place: Path, physical: str, aliases: Sequence[str]) -> bool:
    from instep.clickhouse.session import DATABASE

    # A folder that chdb was given by another program is its own.
    data = place if (place / "metadata").is_dir() else place / "clickhouse"
    if not (data / "metadata").is_dir():
        return place.exists()
    tables = data / "metadata" / DATABASE
    return all((tables / f"{_file_name(each)}.sql").exists() for each in (physical, *aliases))


def _file_name(table: str) -> str:
    """A name as ClickHouse names files by it."""
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f"%{ord(found[0]):02X}", table)
