"""Targets and sources that are classes of a project, or that an installed package brings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.errors import UserError
from instep.project import Project
from tests.jobs.own_code import entry_point, forget

NAME = "own_target_of_a_test"
MODULE = """
from dataclasses import dataclass
from pathlib import Path

from instep import DocumentTarget, ListedDocument
from instep.errors import UserError
from instep.targets.lance import LanceTarget
from instep.targets.lance.tables import LanceTableTarget


@dataclass(frozen=True)
class Told(LanceTarget):
    log: str = ""
    token: str = ""

    def __post_init__(self):
        super().__post_init__()
        if self.token == "wrong-secret":
            raise ValueError(f"the token {self.token} opens nothing at {self.uri}")

    def commit(self, *args, **kwargs):
        with open(self.log, "a") as file:
            file.write("committed\\n")
        return super().commit(*args, **kwargs)


class Leaking(Told):
    def writer(self, *args, **kwargs):
        raise {"error": RuntimeError, "outage": ConnectionError}[self.log](f"login with {self.token} failed")


class Raising(Told):  # In the method that its log names.
    def _demand(self, name):
        if Path(self.log).name == name:
            raise ValueError(f"no {name}")

    def served(self, alias):
        self._demand("served")
        return super().served(alias)

    def promote(self, *args):
        self._demand("promote")
        return super().promote(*args)

    def leftovers(self, *args, **kwargs):
        self._demand("leftovers")
        return super().leftovers(*args, **kwargs)

    def maintain(self, physical):
        self._demand("maintain")
        return super().maintain(physical)

    def refinable(self, physical):
        self._demand("refinable")
        return super().refinable(physical)


class Short(Told):
    def demand_dimensions(self, dimensions):
        if dimensions > 16:
            raise UserError(f"the server takes 16 dimensions, not {dimensions}")


class Alone(Told):
    in_process = True


class Bare:
    kind = "transactional"

    def __init__(self, uri):
        pass


class Stub(DocumentTarget):
    def __init__(self, uri):
        pass

    def check(self):
        pass


class Tickets:
    made = 0

    def __init__(self, folder, token=""):
        if token == "wrong-secret":
            raise ValueError(f"the token {token} is of no use")
        Tickets.made += 1
        self.folder, self.token = Path(folder), token

    def list(self):
        for each in sorted(self.folder.iterdir()):
            if each.name == "broken":
                raise OSError(f"not with {self.token}")
            yield ListedDocument(each.name, str(each.stat().st_mtime_ns))

    def read(self, id):
        return (self.folder / id).read_text()
"""
FILES = {"type": "files", "path": "docs", "include": ["**"]}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.txt").write_text("A bird in the hand")
    (tmp_path / f"{NAME}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget(NAME)


def opened(root: Path, target: dict[str, Any], source: dict[str, Any] | None = None, **more: Any) -> instep.Instep:
    declared = {"type": "python", "uri": "index", **target}
    entities = {"Page": {"source": source or FILES, "target": "index"}}
    whole = {"name": "p", "root": root, "engine": "inline", "targets": {"index": declared}, "entities": entities}
    return instep.Instep(Project.model_validate({**whole, **more}))


def told(root: Path, name: str = "Told", **options: str) -> dict[str, Any]:
    return {"class": f"{NAME}:{name}", "options": {"log": str(root / "log"), **options}}


def test_documents_are_written_by_a_class_of_the_project(root: Path) -> None:
    project = opened(root, told(root))
    (result,) = project.run()
    assert result.counts.written == 1
    assert [each.text for each in project.search("bird", mode="text")] == ["A bird in the hand"]
    assert (root / "log").read_text() == "committed\n"
    assert project.run()[0].state is None, "nothing to do"
    assert list((root / "index").glob("Page__*.lance")), "the place is in the project's folder"


def test_an_installed_package_gives_it_a_name(root: Path) -> None:
    entry_point(root, "instep.targets", "told", f"{NAME}:Told")
    (result,) = opened(root, told(root) | {"class": "told"}).run()
    assert result.counts.written == 1
    assert (root / "log").exists()


@pytest.mark.parametrize(
    ("target", "says", "hint"),
    [
        ({"class": "nothing"}, "no installed package has 'nothing' among its entry points of instep.targets", "Known:"),
        ({"class": f"{NAME}:Missing"}, f"{NAME} has no class 'Missing'", "targets.index.class"),
        ({"class": "nowhere_at_all:X"}, "nowhere_at_all:X cannot be imported", "folder"),
        ({"class": f"{NAME}:Told", "options": {"lag": "1"}}, "does not take these options: got an un", "lag=…"),
        ({"class": f"{NAME}:Bare"}, f"{NAME}:Bare is not a target of documents: it lacks check, claim, ", "instep.Doc"),
        (
            {"class": f"{NAME}:Stub"},
            f"{NAME}:Stub is not a target of documents: it lacks claim, ",
            "instep.DocumentTar",
        ),
    ],
)
def test_a_class_that_is_no_target_is_one_clear_error(root: Path, target: dict[str, Any], says: str, hint: str) -> None:
    with pytest.raises(UserError) as raised:
        opened(root, target).run()
    assert says in raised.value.what
    assert hint in (raised.value.hint or "")


def test_two_packages_with_one_name_are_told_apart(root: Path) -> None:
    entry_point(root, "instep.targets", "told", f"{NAME}:Told")
    entry_point(root, "instep.targets", "told", f"{NAME}:Alone", package="other-code")
    with pytest.raises(UserError, match="several installed packages have 'told'") as raised:
        opened(root, told(root) | {"class": "told"}).run()
    assert f"{NAME}:Alone or {NAME}:Told" in (raised.value.hint or "")


def test_options_are_secrets(root: Path) -> None:
    project = opened(root, told(root, token="wrong-secret"))
    assert "wrong-secret" not in repr(project.project)
    with pytest.raises(UserError, match=r"ValueError: the token \*\*\* opens nothing at \*\*\*") as raised:
        project.run()
    assert raised.value.where == "targets.index"


def test_vectors_that_its_server_does_not_take_are_noticed_before_anything_is_embedded(root: Path) -> None:
    project = opened(root, told(root, "Short"))
    for each in (project.plan, project.run):
        with pytest.raises(UserError, match="takes 16 dimensions, not"):
            each()
    assert [each.subject for each in project.check() if "16 dimensions" in each.detail] == ["embedder of Page"]
    assert project.jobs() == []


def test_one_in_this_process_is_never_given_to_spark(root: Path) -> None:
    with pytest.raises(UserError, match="one in this process, which tasks of Spark cannot reach"):
        opened(root, told(root, "Alone"), engine="spark").run()
    (result,) = opened(root, told(root, "Alone"), engine="auto").run()
    assert result.counts.written == 1


def shows(root: Path, project: instep.Instep, capsys: pytest.CaptureFixture[str]) -> str:
    """All that is shown and kept of a run."""
    try:
        said = repr(project.run())
    except UserError as error:
        said = str(error)
    kept = [each.read_bytes().decode("utf-8", "replace") for each in root.glob("ledger.db*")]
    status = "".join(f"{each!r}" for each in (project.jobs(), project.status(), project.failures()))
    return "".join([said, *kept, status, *capsys.readouterr()])


@pytest.mark.parametrize("method", ["served", "promote"])
def test_what_its_methods_raise_is_an_error_of_the_class(root: Path, method: str) -> None:
    project = opened(root, told(root, "Raising", log=str(root / method)))
    with pytest.raises(UserError, match=rf"Raising\._demand of {NAME} raised ValueError: no {method}") as raised:
        project.run()
    assert re.fullmatch(rf"{root / NAME}\.py:\d+", raised.value.where or "")


@pytest.mark.parametrize("method", ["leftovers", "maintain", "refinable"])
def test_what_its_methods_raise_beside_the_work_is_a_note(root: Path, method: str) -> None:
    project = opened(root, told(root, "Raising", log=str(root / method)))
    (result,) = project.run()
    assert (result.state_name, result.counts.written) == ("COMPLETED", 1)
    assert any(f"Raising._demand of {NAME} raised ValueError: no {method}" in each for each in result.notes)


def test_the_command_line_says_whose_error_it_is(root: Path) -> None:
    declared = {"type": "python", "uri": "index", **told(root, "Raising", log=str(root / "served"))}
    entities = {"Page": {"source": FILES, "target": "index"}}
    whole = {"name": "p", "engine": "inline", "targets": {"index": declared}, "entities": entities}
    (root / "instep.yaml").write_text(json.dumps(whole))
    for command in ("run", "plan", "search bird"):
        call = [sys.executable, "-m", "instep", *command.split()]
        done = subprocess.run(call, cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"Raising._demand of {NAME} raised ValueError: no served" in done.stderr
        assert "report" not in done.stderr


@pytest.mark.parametrize("kind", ["error", "outage"])
def test_what_its_methods_raise_shows_no_secrets(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("instep.jobs.wave.OUTAGE_SECONDS", 0.1)
    leaking = {"class": f"{NAME}:Leaking", "options": {"log": kind, "token": "pass phrase"}}
    shown = shows(root, opened(root, leaking, ledger="sqlite:///ledger.db"), capsys)
    assert "login with *** failed" in shown
    assert "pass phrase" not in shown


@pytest.mark.spark
@pytest.mark.proof
def test_what_its_methods_raise_in_tasks_of_spark_shows_no_secrets(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leaking = {"class": f"{NAME}:Leaking", "options": {"log": "error", "token": "a-secret-of-tasks"}}
    spark = {"master": "local[1]"}
    project = opened(root, leaking, engine="spark", spark=spark, ledger="sqlite:///ledger.db")
    shown = shows(root, project, capsys)
    assert "login with *** failed" in shown
    assert "a-secret-of-tasks" not in shown


@pytest.mark.spark
@pytest.mark.proof
def test_tasks_of_spark_get_its_code(root: Path) -> None:
    spark = {"master": "local[1]"}
    (result,) = opened(root, told(root), engine="spark", spark=spark).run()
    assert result.counts.written == 1
    assert (root / "log").read_text() == "committed\n"


@pytest.mark.spark
@pytest.mark.proof
def test_tables_are_written_by_a_class_of_the_project(root: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (root / "users").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "name": ["Ann", "Bob"]}), root / "users" / "a.parquet")
    table = {"source": {"type": "spark", "format": "parquet", "path": "users"}, "key": "id", "target": "index"}
    target = {"class": f"{NAME}:LanceTableTarget"}
    project = opened(root, target, spark={"master": "local[1]"}, engine="auto", entities={"User": table})
    (result,) = project.run()
    assert result.counts.rows_written == 2


# -- sources -----------------------------------------------------------------------------------


def tickets(root: Path, **options: str) -> dict[str, Any]:
    return {"type": "python", "class": f"{NAME}:Tickets", "options": {"folder": str(root / "docs"), **options}}


LANCE = {"type": "lance", "uri": "index"}


def test_documents_are_listed_and_read_by_a_class(root: Path) -> None:
    (root / "docs" / "two.txt").write_text("Two in the bush")
    project = opened(root, LANCE, tickets(root))
    (result,) = project.run()
    assert result.counts.written == 2
    (root / "docs" / "two.txt").unlink()
    (result,) = project.run(allow_deletes=True)
    assert (result.counts.written, result.counts.deleted) == (0, 1)
    assert project.search("bird", mode="text")[0].source_uri == "function://Page/one.txt"


def test_a_source_by_the_name_of_a_package(root: Path) -> None:
    entry_point(root, "instep.sources", "tickets", f"{NAME}:Tickets")
    (result,) = opened(root, LANCE, tickets(root) | {"class": "tickets"}).run()
    assert result.counts.written == 1


@pytest.mark.parametrize(("token", "broken"), [("wrong-secret", False), ("hidden-secret", True)])
def test_errors_of_a_source_do_not_show_its_options(root: Path, token: str, broken: bool) -> None:
    if broken:
        (root / "docs" / "broken").write_text("x")
    with pytest.raises(UserError, match=r"of no use|not with") as raised:
        opened(root, LANCE, tickets(root, token=token)).run()
    assert token not in str(raised.value)
    assert "***" in raised.value.what


def test_its_code_is_in_the_fingerprint(root: Path) -> None:
    opened(root, LANCE, tickets(root)).run()
    module = root / f"{NAME}.py"
    module.write_text(module.read_text().replace("read_text()", "read_text().upper()"))
    forget(NAME)
    project = opened(root, LANCE, tickets(root))
    assert project.run()[0].counts.written == 1
    assert project.search("bird", mode="text")[0].text == "A BIRD IN THE HAND"


def test_options_are_not_in_the_fingerprint(root: Path) -> None:
    opened(root, LANCE, tickets(root, token="one")).run()
    assert opened(root, LANCE, tickets(root, token="other")).run()[0].state is None


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"read": "a:b"}, "is missing: name functions `list` and `read`, or a `class`"),
        ({"list": "a:b", "read": "a:b", "options": {"x": "1"}}, "belong to a `class`"),
        ({"class": "a:B", "list": "a:b"}, "cannot be set together with `class`, which has it as a method"),
        ({"class": "a.b"}, "must have the form package.module:Class, or be the name that an installed"),
    ],
)
def test_a_source_is_functions_or_a_class(root: Path, source: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        opened(root, LANCE, {"type": "python", **source})


def test_a_class_that_is_not_there_is_called_a_class(root: Path) -> None:
    with pytest.raises(UserError, match="has no class 'Nothing'"):
        opened(root, told(root), {"type": "python", "class": f"{NAME}:Nothing"}).plan()
