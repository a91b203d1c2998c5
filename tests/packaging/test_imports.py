"""Start-up cost: what is not imported costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"lance", "pyarrow", "pyspark", "sqlalchemy", "alembic", "numpy", "httpx", "pypdf", "fsspec", "pandas"}


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["run", "--help"], ["schema"], ["init", "new"]])
def test_light_commands_import_no_heavy_library(args: list[str], tmp_path: Path) -> None:
    modules = _run(args, tmp_path)
    assert "instep.cli" in modules
    assert modules & HEAVY == set()


#: What a run needs that finds something to do, or that talks to a server, or to somebody at a terminal.
IDLE = frozenset(
    (HEAVY - {"sqlalchemy"})
    | {"psycopg", "grpc", "pymilvus", "qdrant_client", "qdrant_edge", "pathspec", "rich.progress", "instep.bus.open"}
    | {
        "instep.pipeline.engine.inline",
        "instep.jobs.worker",
        "instep.pipeline.documents.reading",
        "instep.pipeline.documents.writing",
    }
)


_PROJECT = """\
name: p
engine: inline
targets: {index: %s}
entities:
  Document: {source: {type: files, path: docs}, embed: {type: hashing, dimensions: 8}}
"""


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose ledger says that its document is in."""
    folder = tmp_path_factory.mktemp("indexed")
    (folder / "docs").mkdir()
    (folder / "docs" / "one.md").write_text("# One\n")
    (folder / "instep.yaml").write_text(_PROJECT % "{type: lance, uri: index}")
    _run(["run"], folder)
    return folder


@pytest.mark.parametrize(
    "target",
    [
        "{type: lance, uri: index}",
        "{type: postgres, uri: 'postgresql://nobody:nothing@127.0.0.1:1/none'}",
        "{type: qdrant, uri: index}",
        "{type: milvus, uri: 'http://127.0.0.1:1'}",
    ],
)
def test_a_run_that_finds_nothing_to_do_imports_no_target(target: str, indexed: Path) -> None:
    """Nor does it ask one: at these addresses there is none."""
    (indexed / "instep.yaml").write_text(_PROJECT % target)
    modules = _run(["run"], indexed)
    assert "instep.jobs.run" in modules
    assert modules & IDLE == set()


def _run(args: list[str], folder: Path) -> set[str]:
    """Modules of a process that has run a command without a fault."""
    code = (
        "import instep.cli, json, sys; code = instep.cli.main(json.loads(sys.argv[1])); "
        "print(json.dumps(list(sys.modules))); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, json.dumps(args)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_loading_a_project_needs_pydantic_and_yaml_only() -> None:
    code = "import instep.project, json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & (HEAVY | {"rich", "typer"}) == set()
