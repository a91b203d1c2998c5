"""Start-up cost: what is not imported costs nothing."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import instep

HEAVY = {"lance", "pyarrow", "pyspark", "sqlalchemy", "alembic", "numpy", "httpx", "pypdf", "fsspec", "pandas"}


def test_light_commands_import_no_heavy_library(tmp_path: Path) -> None:
    modules = _run(tmp_path, ["--help"], ["--version"], ["run", "--help"], ["schema"], ["init", "new"])
    assert "instep.cli" in modules
    assert modules & HEAVY == set()
    helped = _run(tmp_path, ["--help"], ["--version"])
    assert helped & {"pydantic", "yaml"} == set()


def test_a_command_imports_no_other(tmp_path: Path) -> None:
    commands = {"instep.cli.status", "instep.cli.queue", "instep.cli.wants", "instep.cli.jobs", "instep.cli.serve"}
    assert _run(tmp_path, ["init", "new"]) & commands == set()
    assert commands <= _run(tmp_path, ["--help"])


def test_help_needs_no_model_of_a_project(tmp_path: Path) -> None:
    modules = _run(tmp_path, ["--help"], ["--version"])
    assert modules & {"pydantic", "yaml", "instep.project"} == set()


#: What a run needs that finds something to do, or that talks to a server, or to a user at a terminal.
IDLE = frozenset(
    (HEAVY - {"sqlalchemy"})
    | {"psycopg", "grpc", "pymilvus", "qdrant_client", "qdrant_edge", "pathspec", "rich", "instep.bus.open"}
    | {
        "instep.pipeline.engine.inline",
        "instep.jobs.worker",
        "instep.pipeline.documents.reading",
        "instep.pipeline.documents.row_program",
        "instep.pipeline.documents.writing",
        "instep.pipeline.documents.html",
        "instep.sources.debezium",
        "instep.sources.file_events",
        "instep.sources.kafka",
        "instep.sources.s3_inventory",
        "instep.sources.sqs_events",
        "instep.answers.answer",
        "instep.answers.looks",
        "instep.cli.status",
        "instep.entities.documents.promotion_checks",
        "instep.entities.documents.quality",
        "instep.entities.documents.repairs",
        "instep.targets.trial",
    }
)


_PROJECT = """\
name: p
engine: inline
targets: {index: %s}
entities:
  Document: {source: {type: files, path: docs}, embed: {type: hashing, dimensions: 8}}
"""


def test_a_run_that_finds_nothing_to_do_imports_no_target(tmp_path: Path) -> None:
    physical = _indexed(tmp_path)
    assert _idle_run(tmp_path, "{type: lance, uri: index}") & IDLE == set()
    (tmp_path / "index" / physical).mkdir()
    (tmp_path / "index" / physical.partition("__")[0]).symlink_to(physical)
    assert _idle_run(tmp_path, "{type: qdrant, uri: index}") & IDLE == set()


def test_a_run_that_finds_nothing_to_do_asks_a_server_and_ends_well_without_an_answer(tmp_path: Path) -> None:
    """At these addresses there is none."""
    _indexed(tmp_path)
    for target, library in (
        ("{type: postgres, uri: 'postgresql://nobody:nothing@127.0.0.1:1/none'}", "psycopg"),
        ("{type: opensearch, uri: 'http://127.0.0.1:1'}", "instep.targets.opensearch"),
    ):
        assert _idle_run(tmp_path, target) & {"pyarrow", "instep.jobs.worker", library} == {library}


def _indexed(folder: Path) -> str:
    """Index a document in Lance; returns the name of the index."""
    (folder / "docs").mkdir()
    (folder / "docs" / "one.md").write_text("# One\n")
    (folder / "lance.yaml").write_text(_PROJECT % "{type: lance, uri: index}")
    assert "lance" in _run(folder, ["run", "-p", "lance.yaml"])
    (index,) = (folder / "index").glob("*.lance")
    return index.stem


def _idle_run(folder: Path, target: str) -> set[str]:
    """Modules of a run whose ledger says that the document is in this target."""
    (folder / "other.yaml").write_text(_PROJECT % target)
    project = instep.load(folder / "other.yaml").project
    (name,) = project.targets
    with closing(sqlite3.connect(folder / ".instep" / "ledger.db")) as ledger, ledger:
        moved = "UPDATE checkpoints SET fingerprint = json_set(fingerprint, '$.target', ?)"
        ledger.execute(moved, [project.target_location(name)])
    modules = _run(folder, ["run", "-p", "other.yaml"])
    assert "instep.jobs.run" in modules
    return modules


def test_a_run_in_this_process_imports_nothing_of_spark(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.md").write_text("# One\n")
    (tmp_path / "instep.yaml").write_text(_PROJECT % "{type: lance, uri: index}")
    modules = _run(tmp_path, ["run"])
    assert "instep.pipeline.engine.inline" in modules
    assert modules & {"pyspark", "py4j"} == set()


def _run(folder: Path, *commands: list[str]) -> set[str]:
    """Modules of a process that has run these commands, each without a fault."""
    code = (
        "import instep.cli, json, sys; codes = [instep.cli.main(each) for each in json.loads(sys.argv[1])]; "
        "print(json.dumps(list(sys.modules))); sys.exit(any(codes))"
    )
    command = [sys.executable, "-c", code, json.dumps(commands)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_loading_a_project_needs_pydantic_and_yaml_only() -> None:
    code = "import instep.project, json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & (HEAVY | {"rich", "typer"}) == set()


#: Modules that are imported where Spark is started, or in its tasks.
OF_SPARK = {
    "instep.pipeline.engine.connect_channel",
    "instep.pipeline.engine.corpus",
    "instep.pipeline.engine.datasource",
    "instep.pipeline.engine.executor_probe",
    "instep.pipeline.engine.key_side",
    "instep.pipeline.engine.path_checks",
    "instep.pipeline.engine.spark_engine",
    "instep.pipeline.engine.tasks",
    "instep.sources.tables.clickhouse_datasource",
}


def test_only_what_runs_on_spark_cannot_be_imported_without_pyspark() -> None:
    code = (
        "import importlib, json, pkgutil, sys; sys.modules['pyspark'] = None; import instep; failed = []\n"
        "for each in pkgutil.walk_packages(instep.__path__, 'instep.'):\n"
        "    if each.name.startswith('instep.ledger.migrations.') or each.name.endswith('__main__'): continue\n"
        "    try: importlib.import_module(each.name)\n"
        "    except ImportError as error: failed.append([each.name, error.name])\n"
        "print(json.dumps(failed))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    failed = json.loads(done.stdout.splitlines()[-1])
    assert {name for name, missing in failed if missing.partition(".")[0] == "pyspark"} == OF_SPARK, failed
    assert {name for name, missing in failed if missing.partition(".")[0] != "pyspark"} == set(), failed
