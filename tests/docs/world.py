"""The folder that the pages speak of: documents by the names that stand there, and what they are declared by."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from instep.targets.opensearch.target import OpenSearchTarget
from tests.servers.opensearch import running_opensearch
from tests.targets.opensearch.conftest import forget_all

PROJECT: Final = """\
name: handbook
engine: inline
targets: {index: {type: lance, uri: .instep/index}}
entities:
  Document:
    source: {type: files, path: docs}
    embed: {type: hashing}
"""
_FOLDERS: Final = ("handbook", "manual", "tickets", "notes", "pages", "reports", "sites", "authors")
_DOCUMENTS: Final = {
    "docs/guide.md": "# Guide\n\nHow do I configure it? By a file.\n",
    "docs/tides.md": "# Tides\n\nThe moon and the sea: a neap tide is a low one.\n",
    "docs/guides/fire.md": "# Fire\n\nThe printer is on fire.\n",
    "debezium/one.jsonl": json.dumps(
        {"op": "c", "after": {"id": 1, "subject": "Printer", "body": "It is on fire.", "team": "ops"}}
    )
    + "\n",
    "docs/guides/smoke.md": "# Smoke\n\nWhere there is smoke, look at the printer.\n",
}
_NOON: Final = datetime(2026, 11, 28, 12, tzinfo=UTC)
#: Tables by their folders, each as one row.
_TABLES: Final[dict[str, dict[str, object]]] = {
    "data/people": {"email": "ann@example.com", "name": "Ann", "updated_at": _NOON},
    "data/commits": {
        **{"id": 1, "sha": "1f0c", "subject": "Mend it", "message": "Mend it.", "author": "ann@example.com"},
        **{"author_email": "ann@example.com", "updated_at": _NOON},
    },
    "data/tickets": {
        **{"id": 1, "subject": "Printer", "title": "Printer on fire", "body": "The printer is on fire.", "team": "ops"},
        **{"price": 60, "labels": [{"name": "hot", "since": _NOON.date()}], "is_deleted": False},
        "updated_at": _NOON,
    },
    "data/comments": {
        **{"id": 1, "ticket_id": 1, "body": "It is.", "created_at": _NOON, "updated_at": _NOON, "is_deleted": False}
    },
}
#: Front matter has whatever a page declares as a column.
_FRONT: Final = "---\nacl: [public]\nteam: ops\ntags: [a]\n---\n"


def make_documents(folder: Path) -> None:
    for name, text in {
        **_DOCUMENTS,
        **{f"{each}/one.md": f"# One\n\nA page of {each}.\n" for each in _FOLDERS},
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text((_FRONT if name.endswith(".md") else "") + text, encoding="utf-8")


def make_tables(folder: Path, names: Iterable[str] = tuple(_TABLES)) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist([_TABLES[name]]), folder / name / "rows.parquet")
    for name in ("people", "tickets"):
        deltalake.write_deltalake(folder / "lake" / name, pa.Table.from_pylist([{"id": 1, **_TABLES[f"data/{name}"]}]))


def empty_opensearch() -> str:
    """The address of the server of this process, without what other tests have left there."""
    address = running_opensearch().url().rstrip("/")
    forget_all(OpenSearchTarget(address))
    return address
