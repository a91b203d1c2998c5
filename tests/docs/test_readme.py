"""The README's tour works as it is written: every line is run, in order, in an empty folder."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from instep.cli import main
from instep.project.load import load_project
from tests.docs.blocks import run
from tests.docs.page import ROOT, blocks_of, commands_of
from tests.docs.shell import Shell
from tests.docs.world import PROJECT, make_documents, make_tables

README = (ROOT / "README.md").read_text(encoding="utf-8")

#: Tables in this process's ClickHouse; one match of four is covered.
MATCHES = """\
from pathlib import Path
from instep.clickhouse.embedded import session

with session(Path(".instep/matches"), alone=True) as clickhouse:
    for statement in (
        "CREATE TABLE history (match_id UInt64, started_at DateTime) ENGINE = MergeTree ORDER BY match_id",
        "CREATE TABLE match_salts (match_id UInt64) ENGINE = MergeTree ORDER BY match_id",
        "INSERT INTO history SELECT number, now() - 86400 FROM numbers(4)",
        "INSERT INTO match_salts VALUES (3)",
    ):
        clickhouse.command(statement)
"""


def _block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found, f"the README has no {language} block"
    return found[1]


def test_the_tour_and_the_python_example_work_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [line.removeprefix("$ ") for line in _block("console").splitlines()]
    assert len(commands) == 10
    monkeypatch.chdir(tmp_path)
    said: dict[str, str] = {}
    for command in commands:
        if not command.startswith("instep "):
            subprocess.run(["/bin/sh", "-c", command], check=True)
            continue
        # In this process: starting Python for each takes longer than what it does. That the program is there is seen
        # in `tests/packaging`.
        code = main(shlex.split(command)[1:])
        heard = capsys.readouterr()
        # Changes are pending: that is what 2 says.
        assert code == (2 if command == "instep plan" else 0), f"{command}\n{heard.out}{heard.err}"
        assert "Traceback" not in heard.err
        said[command] = heard.out
    assert "moon pulls the sea" in said['instep search "moon and sea"']
    (again,) = json.loads(said["instep run --json"])
    assert again["counts"]["written"] == 1
    assert "Indexed" in said["instep status"]
    done = subprocess.run(
        [sys.executable, "-c", _block("python")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "tides.md" in done.stdout.splitlines()[0]


def test_what_make_is_asked_for_is_there() -> None:
    (demo, test) = [line.partition(" #")[0].split() for line in _block("sh").splitlines()]
    for command in (demo, test):
        subprocess.run([command[0], "-n", *command[1:]], cwd=ROOT, capture_output=True, check=True)


def test_the_commands_that_show_it_all_work(tmp_path: Path) -> None:
    make_documents(tmp_path)
    (tmp_path / "instep.yaml").write_text(PROJECT)
    (block,) = [each for each in blocks_of("README.md") if "instep top" in each.text]
    with ExitStack() as stack:
        shell = Shell(tmp_path, stack, {"instep serve": "instep serve --port 0"})
        for command in commands_of(block):
            shell.run(command)
            assert command.text.startswith("pip") or "handbook" in shell.said


@pytest.mark.proof
@pytest.mark.spark
def test_the_graph_of_the_readme_is_built(tmp_path: Path) -> None:
    make_tables(tmp_path)
    (tmp_path / "instep.yaml").write_text(f"name: readme\n{_block('yaml')}")
    results = json.loads(run("instep run --json", tmp_path))
    assert {each["ref"]: each["counts"]["written"] for each in results} == {"Person@global": 1, "Commit@global": 1}


@pytest.mark.proof
def test_the_queue_of_the_readme_gives_what_is_missing(tmp_path: Path) -> None:
    (block,) = [each.text for each in blocks_of("README.md") if each.text.startswith("queues:")]
    (tmp_path / "instep.yaml").write_text(f"name: readme\n{block}")
    (tmp_path / "made.py").write_text(MATCHES)
    run("python made.py", tmp_path)
    for step in ("create", "backfill", "verify", "switch"):
        run(f"instep queue {step} salts", tmp_path)
    given = [json.loads(line)["key"] for line in run("instep queue next salts", tmp_path).splitlines()]
    assert sorted(given) == [0, 1, 2]


@pytest.mark.parametrize("declaration", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_the_declarations_of_the_readme_are_valid(tmp_path: Path, declaration: str) -> None:
    file = tmp_path / "instep.yaml"
    file.write_text(f"name: readme\n{declaration}", encoding="utf-8")
    project = load_project(file)
    assert {*project.entities, *project.queues} == set(re.findall(r"^  (\w+):$", declaration, re.MULTILINE))


def test_an_entity_of_the_docs_takes_from_the_queue_of_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = Path(__file__).parents[2] / "docs"
    queue, entity = (
        re.search(rf"```yaml\n({kind}:.*?)```", (docs / page).read_text(encoding="utf-8"), re.DOTALL)
        for kind, page in (("queues", "queues.md"), (r"entities:\n  Match", "tables.md"))
    )
    assert queue
    assert entity
    file = tmp_path / "instep.yaml"
    targets = "targets: {main: {type: lance, uri: index}}"
    file.write_text(f"name: docs\n{targets}\n{queue[1]}{entity[1]}", encoding="utf-8")
    monkeypatch.setenv("CLICKHOUSE_PASSWORD", "s3cret")
    project = load_project(file)
    assert project.entities["Match"].changes.queue in project.queues  # type: ignore[union-attr]  # it is a table


def test_every_document_the_readme_points_to_is_there() -> None:
    root = Path(__file__).parents[2]
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (root / target).exists(), target
