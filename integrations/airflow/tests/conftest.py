"""A real Airflow, its database in a temporary folder; and projects of a few notes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

# Airflow reads these when it is imported first.
_HOME: Final = tempfile.TemporaryDirectory(prefix="airflow-")
os.environ |= {
    "AIRFLOW_HOME": _HOME.name,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": f"{_HOME.name}/dags",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
}

PROJECT: Final = """\
name: notes
targets:
  lance: {type: lance, uri: .instep/lance}
entities:
  Note:
    source: {type: files, path: docs}
    parse: {type: python, function: "parsing:parse"}
"""
#: Each parsed document is a line in `parsed`. Says so before it takes its time, or fails.
PARSING: Final = """\
import pathlib
import time

HERE = pathlib.Path(__file__).parent


def parse(content: bytes, uri: str) -> str:
    text = content.decode()
    with (HERE / "parsed").open("a") as file:
        file.write(uri.rpartition("/")[2] + "\\n")
    if "slow" in text and not (HERE / "fast").exists():
        time.sleep(600)
    if "broken" in text:
        raise ValueError("cannot be read")
    return text
"""


@pytest.fixture(scope="session")
def dags() -> Iterator[Path]:
    """The folder of DAGs of an Airflow with a database."""
    folder = Path(_HOME.name) / "dags"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)
    yield folder
    _HOME.cleanup()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two notes."""
    folder = tmp_path / "notes"
    (folder / "docs").mkdir(parents=True)
    (folder / "instep.yaml").write_text(PROJECT)
    (folder / "parsing.py").write_text(PARSING)
    write(folder, "first")
    write(folder, "second")
    return folder


def write(project: Path, name: str, text: str = "a zebra") -> None:
    (project / "docs" / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
