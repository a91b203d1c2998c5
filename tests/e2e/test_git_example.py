"""`examples/git`: the graph says what git itself says, of a repository with all that histories have."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.parquet as pq
import pytest

import instep
from instep.container import Container
from instep.entities.plan_request import Kind
from instep.entities.tables.setup import TableSetup
from instep.jobs.entity_result import EntityResult
from tests.sources.tables.sessions import session

EXAMPLE = Path(__file__).parents[2] / "examples" / "git"
MAILMAP = b"Ada Lovelace <ada@example.org> <ada@old.example>\n"
ADA, OLD_ADA, BOB = b"Ada <Ada@Example.org>", b"ada l <ada@old.example>", b"B\xf6b <bob@example.org>"
Told: TypeAlias = tuple[int, bytes, bytes, list[int], bytes, Mapping[bytes, bytes | None]]
"""Number, author, committer, parents, subject, and the files that are written, or deleted."""

BEGINNING: list[Told] = [
    (1, ADA, ADA, [], b"first", {b".mailmap": MAILMAP, b"a.txt": b"1\n2\n", b"src/x.py": b"x\n", b"bin": b"\0\1"}),
    (2, OLD_ADA, BOB, [1], b"caf\xc3\xa9", {b"caf\xc3\xa9/gr\xc3\xbc\xc3\x9fe.txt": b"a\nb\n", b"src/\xff.py": b"1\n"}),
    (3, BOB, BOB, [2], b"renamed", {b"a.txt": None, b"b.txt": b"1\n2\n"}),
    (4, BOB, ADA, [2], b"commit:\tbeside", {b"src/x.py": b"y\nz\n", b'odd\n"name"\t.txt': b"1\n"}),
    (5, ADA, ADA, [3, 4], b"merged", {b"src/x.py": b"y\nz\n", b'odd\n"name"\t.txt': b"1\n"}),
    (6, BOB, BOB, [5], b"", {}),
    (7, ADA, BOB, [6], b"a path that looks like a commit", {b"commit:src/x.py": b"1\n"}),
]
LATER: list[Told] = [
    (8, b"Carol <carol@example.org>", BOB, [7], b"new", {b"src/x.py": b"z\n", b"src/new.py": b"1\n2\n3\n"}),
    (9, b"Bob <bob@example.org>", BOB, [8], b"gone", {b"b.txt": None, b"bin": b"\0\2"}),
]
#: In place of commit 9.
REWRITTEN: list[Told] = [(10, ADA, ADA, [8], b"another", {b"b.txt": b"3\n"})]


class Repository:
    """One that others push to, and a clone of it. The truth is asked of git commit by commit, and of its index."""

    def __init__(self, root: Path) -> None:
        self.origin, self.clone = root / "origin.git", root / "clone"
        root.mkdir(exist_ok=True)
        _git(root, "init", "-q", "--bare", "-b", "main", str(self.origin))
        self.push(BEGINNING)
        _git(root, "clone", "-q", str(self.origin), str(self.clone))

    def push(self, history: Iterable[Told]) -> None:
        """What `history` has ends on the branch `main`."""
        marks = self.origin / "marks"
        marks.touch()
        _git(
            self.origin,
            *("fast-import", "--quiet", "--force", f"--import-marks={marks}", f"--export-marks={marks}"),
            stdin=b"".join(map(_commit, history)),
        )

    def pull(self) -> None:
        _git(self.clone, "fetch", "-q")
        _git(self.clone, "reset", "-q", "--hard", "origin/main")

    def truth(self) -> dict[str, list[tuple[Any, ...]]]:
        """The graph: nodes by label and edges by kind, in order."""
        found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _COLUMNS}
        names: dict[str, str] = {}
        for sha in _git(self.clone, "rev-list", "HEAD").decode().split():
            show = "--format=%P%n%aE%n%aN%n%cE%n%cN%n%at%n%ct%n%s"
            shown = _git(self.clone, "show", "-s", show, sha).decode(errors="replace").split("\n")
            parents, author, author_name, committer, committer_name, authored, committed, subject = shown[:8]
            names.setdefault(author.lower(), author_name)  # The newest commit comes first.
            names.setdefault(committer.lower(), committer_name)
            found["Commit"].append((sha, subject, int(authored), int(committed)))
            found["AUTHORED"].append((author.lower(), sha))
            found["COMMITTED"].append((committer.lower(), sha))
            found["PARENT"] += [(sha, each) for each in parents.split()]
            if len(parents.split()) < 2:
                changes = _git(self.clone, "diff-tree", "--root", "--no-commit-id", "-r", "--numstat", "-z", sha)
                rows = [each.decode(errors="replace").split("\t", 2) for each in changes.split(b"\0") if each]
                found["Change"] += [(sha, path, _number(added), _number(removed)) for added, removed, path in rows]
                found["CHANGED"] += [(sha, path) for _, _, path in rows]
        paths = [each.decode(errors="replace") for each in _git(self.clone, "ls-files", "-z").split(b"\0") if each]
        found["File"] = [(path, path.rpartition("/")[0]) for path in paths]
        found["Person"] = list(names.items())
        return {name: sorted(rows, key=repr) for name, rows in found.items()}


#: Of what the tables have, what the truth has too: the entity, its kind of edge, and the columns.
_COLUMNS = {
    "Person": ("Person", "", ("email", "name")),
    "Commit": ("Commit", "", ("sha", "subject", "authored_at", "committed_at")),
    "File": ("File", "", ("path", "folder")),
    "Change": ("Change", "", ("sha", "path", "additions", "deletions")),
    "AUTHORED": ("Commit", "AUTHORED", ("from_email", "to_sha")),
    "COMMITTED": ("Commit", "COMMITTED", ("from_email", "to_sha")),
    "PARENT": ("Parent", "PARENT", ("from_sha", "to_sha")),
    "CHANGED": ("Change", "CHANGED", ("from_sha", "to_path")),
}


def _commit(each: Told) -> bytes:
    """In the words of `git fast-import`, so that names of files may be anything."""
    number, author, committer, parents, subject, files = each
    when = b"%d +0130" % (1_700_000_000 + 1_000 * number)
    lines = [b"commit refs/heads/main", b"mark :%d" % number]
    lines += [b"author %s %s" % (author, when), b"committer %s %s" % (committer, when), b"data %d" % len(subject)]
    lines += [subject, *(b"%s :%d" % (b"merge" if at else b"from", one) for at, one in enumerate(parents))]
    for path, content in files.items():
        quoted = b'"' + b"".join(b"\\%03o" % byte for byte in path) + b'"'
        if content is None:
            lines.append(b"D " + quoted)
        else:
            lines += [b"M 100644 inline " + quoted, b"data %d" % len(content), content]
    return b"\n".join(lines) + b"\n\n"


def _git(where: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    return subprocess.run(["git", "-C", str(where), *arguments], input=stdin, stdout=subprocess.PIPE, check=True).stdout


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of `run.py`. Git runs without the settings of the user who runs the tests."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return runpy.run_path(str(EXAMPLE / "run.py"))


@pytest.fixture
def repository(example: dict[str, Any], tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def run(work: Path) -> dict[str, EntityResult]:
    results = instep.Instep(instep.load(work).project, spark=session()).run()
    return {each.plan.ref.entity: each for each in results}


def stored(work: Path) -> dict[str, list[tuple[Any, ...]]]:
    container = Container(instep.load(work).project, spark=session())
    found = {}
    with closing(container):
        for name, (entity, kind, columns) in _COLUMNS.items():
            (setup,) = container.setups([entity])
            assert isinstance(setup, TableSetup)
            served = setup.target.served(setup.alias)
            assert served is not None
            found[name] = _rows(setup.target.read(served, kind).to_pylist(), columns)
    return found


def exported(tables: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What the Parquet says where it is the graph already."""
    folders = {"Person": "people", "Commit": "commits", "File": "files", "Change": "changes"}
    found = {}
    for name, folder in folders.items():
        rows = [row for row in pq.read_table(tables / folder).to_pylist() if not row.get("gone")]
        found[name] = _rows(rows, _COLUMNS[name][2])
    return found


def _rows(rows: Iterable[dict[str, Any]], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return sorted((tuple(_plain(row[column]) for column in columns) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    return int(value.timestamp()) if isinstance(value, datetime) else value


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long  # Graphs are made of tables in other tests, too; this is of the example.
def test_a_history_becomes_a_graph_and_stays_in_step(
    example: dict[str, Any],
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    work, prepare = tmp_path / "work", example["prepare"]
    prepare(repository.clone, work, "clickhouse")
    run(work)
    truth = repository.truth()
    assert stored(work) == truth
    assert {name for name, _ in truth["Person"]} == {"ada@example.org", "bob@example.org"}

    repository.push(LATER)
    repository.pull()
    found = prepare(repository.clone, work, "clickhouse")
    assert (found.whole, found.commits, found.changes) == (False, 2, 4)
    after = run(work)
    assert stored(work) == repository.truth()
    assert {name: each.counts.read for name, each in after.items()} == {
        "Person": 3,  # one is new, one has another name: a file that was written anew is read whole
        "Commit": 2,
        "Parent": 2,
        "File": 9,  # the same: one is new, one is gone
        "Change": 4,
    }

    # The whole command, with nothing to do: no table is read, and no JVM started.
    monkeypatch.setattr(sys, "argv", ["run.py", str(repository.clone), "--work", str(work)])
    assert example["main"]() == 0
    said = capfd.readouterr().out
    assert said.count("up to date") == len(after)
    answered = [each.replace("│", " ").split()[1:] for each in said.splitlines() if "│" in each]
    assert ["src", "Carol", "40", "3", "2"] in answered  # Of five changes she made the last two, and Ada the first.
    assert ["src/x.py", "3", "3", "3", "2"] in answered  # The merge has made none of its own.

    repository.push(REWRITTEN)
    repository.pull()
    assert prepare(repository.clone, work, "clickhouse").whole
    rebuilt = run(work)
    assert stored(work) == repository.truth()
    assert {each.plan.kind for each in rebuilt.values()} == {Kind.REBUILD}


def test_an_export_is_the_same_in_blocks_of_any_size(
    example: dict[str, Any], repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = repository.truth()
    for size in (7, 64, 1_000):
        monkeypatch.setattr(sys.modules["export"], "BLOCK_BYTES", size)
        found = example["export"](repository.clone, tmp_path / str(size))
        assert exported(found.tables) == {name: truth[name] for name in ("Person", "Commit", "File", "Change")}


def test_a_setting_that_affects_all_history_exports_all_of_it_again(
    example: dict[str, Any], repository: Repository, tmp_path: Path
) -> None:
    export, folder = example["export"], tmp_path / "history"
    assert export(repository.clone, folder).whole
    assert not export(repository.clone, folder).commits
    other = {b".mailmap": MAILMAP + b"Robert <bob@example.org>\n"}
    repository.push([(11, ADA, ADA, [7], b"mailmap", other)])
    repository.pull()
    found = export(repository.clone, folder)
    assert found.whole
    assert ("bob@example.org", "Robert") in exported(found.tables)["Person"]
    assert [each.name for each in folder.iterdir() if each.is_dir()] == [found.tables.name]

    shallow = tmp_path / "shallow"
    _git(tmp_path, "clone", "-q", "--depth", "2", f"file://{repository.origin}", str(shallow))
    assert export(shallow, folder).commits == 2
    _git(shallow, "fetch", "-q", "--unshallow")
    found = export(shallow, folder)
    assert found.whole
    assert exported(found.tables)["Change"] == repository.truth()["Change"]


def test_an_export_that_was_interrupted_is_made_good_by_the_next(
    example: dict[str, Any], repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export, folder = example["export"], tmp_path / "history"
    export(repository.clone, folder)
    repository.push(LATER[:1])
    repository.pull()
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["export"], "_with_files", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            export(repository.clone, folder)
    repository.push(LATER[1:])
    repository.pull()
    found = export(repository.clone, folder)
    truth = repository.truth()
    assert exported(found.tables) == {name: truth[name] for name in ("Person", "Commit", "File", "Change")}


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_its_page_has_the_questions_as_they_are_asked() -> None:
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for each in (EXAMPLE / "questions").glob("*.sql"):
        assert each.read_text(encoding="utf-8").strip() in page
