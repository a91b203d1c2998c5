"""Projects of a few notes, and of rows in namespaces; and Dagster's project that has one as a component."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PROJECT: Final = """\
name: notes
targets:
  lance: {type: lance, uri: .instep/lance}
entities:
  Note:
    source: {type: files, path: docs}
    parse: {type: python, function: "parsing:parse"}
  Digest:
    source: {type: files, path: digests}
    depends_on: [Note]
"""
PARSING: Final = """\
import pathlib
import time

HERE = pathlib.Path(__file__).parent


def parse(content: bytes, uri: str) -> str:
    text = content.decode()
    if "slow" in text and not (HERE / "fast").exists():
        (HERE / "parsing").touch()
        time.sleep(60)
    if "broken" in text:
        raise ValueError("cannot be read")
    return text
"""

ROWS: Final = """\
name: rows
namespaces: [{names}]
targets:
  lance: {{type: lance, uri: .instep/lance}}
entities:
  Ticket:
    source: {{type: spark, format: parquet, path: tickets.parquet}}
    key: [id]
    scope: path
"""
#: As `create-dagster project` writes it.
DEFINITIONS: Final = """\
from pathlib import Path

import dagster as dg


@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "docs").mkdir(parents=True)
    (folder / "digests").mkdir()
    (folder / "instep.yaml").write_text(PROJECT)
    (folder / "parsing.py").write_text(PARSING)
    write(folder, "first")
    write(folder, "second")
    (folder / "digests" / "all.md").write_text("# All\n\nzebras\n")
    return folder


def write(project: Path, name: str, text: str = "a zebra") -> None:
    (project / "docs" / f"{name}.md").write_text(f"# {name}\n\n{text}\n")


def write_rows(folder: Path, scopes: Sequence[str] = ("42/9970", "42/9970", "42/9971")) -> Path:
    """A project of a row in each of these namespaces."""
    made = folder / "rows"
    made.mkdir()
    paths = [f"{each}/" for each in scopes]
    rows = {"id": range(1, len(paths) + 1), "path": paths, "title": paths}
    pq.write_table(pa.table(rows), made / "tickets.parquet")
    names = ", ".join(sorted(set(scopes)))
    (made / "instep.yaml").write_text(ROWS.format(names=names))
    return made


def component(folder: Path, attributes: str) -> Path:
    """A project of Dagster whose one component is this, in its file of YAML."""
    root = folder / "orchestrated"
    defs = root / "src" / "orchestrated" / "defs" / "notes"
    defs.mkdir(parents=True)
    (root / "src" / "orchestrated" / "__init__.py").touch()
    (root / "src" / "orchestrated" / "defs" / "__init__.py").touch()
    (root / "src" / "orchestrated" / "definitions.py").write_text(DEFINITIONS)
    (root / "pyproject.toml").write_text(
        '[project]\nname = "orchestrated"\nversion = "1"\n'
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "orchestrated"\n'
    )
    (defs / "defs.yaml").write_text(f"type: instep_dagster.InstepProject\nattributes:\n{attributes}")
    return root


def definitions(folder: Path, attributes: str) -> dg.Definitions:
    """What Dagster loads of that."""
    root = component(folder, attributes)
    for name in [each for each in sys.modules if each.partition(".")[0] == "orchestrated"]:
        del sys.modules[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "src")
        return dg.load_from_defs_folder(path_within_project=root)
