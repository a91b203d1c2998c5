"""Functions that find out while they run that they need another partition: the part waits, and goes on after it."""

from __future__ import annotations

import pickle
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.container import Container
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import WantState
from instep.error_transport import pack, unpacked
from instep.errors import InstepError, UpstreamMissing, UserError
from instep.ledger.ledger import Ledger
from instep.pipeline import code_fingerprint
from instep.project import Project

#: A page with `needs NAME` is read with what is indexed of NAME, in its own file of the folder `built`.
MODULE = """
import os
import re

from instep import UpstreamMissing

HERE = {here!r}


def parse(data, uri):
    text = data.decode()
    for name in re.findall(r"needs (\\S+)", text):
        if not os.path.exists(os.path.join(HERE, "built", name)):
            raise UpstreamMissing(name)
    return text


def author(data, uri):
    text = parse(data, uri)
    open(os.path.join(HERE, "built", "Author"), "w").close()
    return text
"""
PAGE, AUTHOR = PartitionRef("Page"), PartitionRef("Author")


def module_of(root: Path) -> str:
    """The module of a test: tasks of one Spark session keep the first of a name."""
    return f"asking_{root.name}"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("pages", "authors", "built", "code"):
        (tmp_path / name).mkdir()
    (tmp_path / "code" / f"{module_of(tmp_path)}.py").write_text(MODULE.format(here=str(tmp_path)))
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield tmp_path
    sys.modules.pop(module_of(tmp_path), None)
    code_fingerprint._loaded.clear()


def opened(root: Path, engine: str = "inline", **more: Any) -> instep.Instep:
    def entity(path: str, function: str, **settings: Any) -> dict[str, Any]:
        source = {"type": "files", "path": path}
        return {"source": source, "target": "index", "parse": {"type": "python", "function": function}, **settings}

    targets = {"index": {"type": "lance", "uri": "index"}}
    entities = {
        "Page": entity("pages", f"{module_of(root)}:parse", **more),
        "Author": entity("authors", f"{module_of(root)}:author"),
    }
    declared = {"name": "p", "root": root, "engine": engine, "targets": targets, "entities": entities}
    return instep.Instep(Project.model_validate(declared))


def write(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        (root / name.replace("__", "/")).with_suffix(".md").write_text(text)


def events(project: instep.Instep) -> list[str]:
    with closing(Container(project.project).ledger(read_only=True)) as ledger:
        return [each[2] for each in ledger.events.rows(0, 1_000)]


def test_a_run_builds_what_its_function_asks_for_and_goes_on(root: Path) -> None:
    write(root, authors__a="Ann writes.", pages__p="This needs Author to be read.", pages__q="Not this one.")
    project = opened(root)
    results = project.run(["Page"])
    assert [(str(each.ref), each.state) for each in results] == [
        ("Author@global", JobState.COMPLETED),
        ("Page@global", JobState.COMPLETED),
    ]
    assert project.search("read", mode="text", entities=["Page"])[0].text == "This needs Author to be read."
    assert events(project).count("dependency.missed") == 1
    (want,) = [each for each in project.wants(ended=True) if each.refs == ("Author@global",)]
    assert want.state is WantState.SUCCESSFUL
    built, upstream = (project.history(name)[0] for name in ("Page", "Author"))
    assert built.inputs == (upstream.uuid,), "what it turned out to need is among what it is made from"
    with closing(Container(project.project).ledger(read_only=True)) as ledger:
        assert ledger.events.verify().differences == ()
    assert [each.state for each in project.run()] == [None, None]


def test_no_attempt_is_spent_and_no_document_has_failed(root: Path) -> None:
    write(root, authors__a="Ann writes.", **{f"pages__p{n}": "This needs Author to be read." for n in range(30)})
    project = opened(root)
    _, page = project.run(["Page"])
    assert (page.counts.written, page.counts.failed) == (30, 0)
    assert project.failures() == []
    slices = project.slice_page(page.job_id or "", entity="Page")
    assert {each.attempts for each in slices} == {0}


def test_whatever_else_was_claimed_goes_back_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of giants, which are waves of their own: the first wave says what is missing, the others were claimed."""
    pages = {f"pages__p{n}": "This needs Author to be read." if n % 2 else "Nothing is missing." for n in range(40)}
    write(root, authors__a="Ann writes.", **pages)
    monkeypatch.setattr("instep.jobs.wave.without_giants", lambda claims: [[each] for each in claims])
    project = opened(root, buckets=8)
    _, page = project.run(["Page"])
    assert (page.state, page.counts.written) == (JobState.COMPLETED, 40)
    assert page.seconds < 20


def test_the_next_run_goes_on_with_what_waits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is stopped when it has just said what it waits for."""
    write(root, authors__a="Ann writes.", pages__p="This needs Author to be read.")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("instep.jobs.prerequisites.Prerequisites.begin", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(root).run(["Page"])
    project = opened(root)
    (want,) = project.wants()
    assert (want.refs, want.state) == (("Author@global",), WantState.IDLE)
    assert [str(each.ref) for each in project.run(["Page"])] == ["Author@global", "Page@global"]
    assert len(project.search("read", mode="text", entities=["Page"])) == 1


def test_a_worker_builds_it_as_it_serves_any_want(root: Path) -> None:
    write(root, authors__a="Ann writes.", pages__p="This needs Author to be read.")
    project = opened(root)
    project.want("Page")
    with closing(Container(project.project)) as container, closing(container.ledger()) as ledger:
        _serve(container, ledger)
    assert len(project.search("read", mode="text", entities=["Page"])) == 1
    assert events(project).count("dependency.missed") == 1


def _serve(container: Container, ledger: Ledger) -> None:
    from instep.jobs.serve import serve
    from instep.telemetry.progress import Silent

    serve(container.setups(), container.context(ledger, Silent()), until_idle=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("needs Athor", "did you mean Author"),
        ("needs Author@42/9970", "Author@42/9970"),
        ("needs Page", "would wait for itself"),
    ],
)
def test_what_cannot_be_waited_for_is_an_error_of_the_partition(root: Path, text: str, said: str) -> None:
    write(root, authors__a="Ann writes.", pages__p=text)
    with pytest.raises(UserError) as caught:
        opened(root).run(["Page"])
    assert said in str(caught.value)
    assert opened(root).wants() == []


def test_a_function_that_asks_for_what_is_there_is_told_so(root: Path) -> None:
    write(root, authors__a="Ann writes.", pages__p="This needs Author to be read.")
    project = opened(root)
    project.run(["Author"])
    (root / "built" / "Author").unlink()
    with pytest.raises(UserError, match="asks for Author@global, which is there"):
        project.run(["Page"])


def test_two_that_ask_for_each_other_end_with_an_error(root: Path) -> None:
    write(root, authors__a="This needs Page to be read.", pages__p="This needs Author to be read.")
    with pytest.raises(InstepError) as caught:
        opened(root).run(["Page"])
    assert "would wait for itself" in str(caught.value)


def test_it_fails_with_what_it_waits_for(root: Path) -> None:
    (root / "authors" / "a.md").write_bytes(b"\xff\xfe\x00")
    write(root, pages__p="This needs Author to be read.")
    project = opened(root)
    results = project.run(["Page"])
    assert [each.state for each in results] == [JobState.FAILED, JobState.FAILED]
    assert "Page@global waits for Author@global, which failed" in str(results[-1].notes)


def test_workers_beside_each_other_wait_once(root: Path) -> None:
    write(root, authors__a="Ann writes.", **{f"pages__p{n}": "This needs Author to be read." for n in range(200)})
    project = opened(root, buckets=8)
    project.want("Page")
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with closing(Container(project.project)) as container, closing(container.ledger()) as ledger:
                _serve(container, ledger)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not errors
    project.run()
    assert len(project.search("read", mode="text", entities=["Page"], limit=500)) == 200
    with closing(Container(project.project).ledger(read_only=True)) as ledger:
        assert ledger.events.verify().differences == ()


def test_it_is_built_anew_with_its_upstream_if_it_says_so(root: Path) -> None:
    write(root, authors__a="Ann writes.", pages__p="This needs Author to be read.")
    plain = opened(root, depends_on=["Author"])
    following = opened(root, depends_on=["Author"], rebuild_with_upstream=True)
    plain.run()
    before = plain.history("Page")[0]
    plain.taint("Author")
    assert [str(each.ref) for each in following.run(["Page"])] == ["Page@global"], "the new one is not there yet"
    plain.run(["Author"])
    assert [each.state for each in plain.run()] == [None, None], "nobody has said so"
    (plan,) = following.plan(["Page"])
    assert (str(plan.kind), plan.why) == ("rebuild", ("Author@global was replaced since",))
    assert [each.state for each in following.run(["Page"])] == [JobState.COMPLETED]
    page, author = (following.history(name)[0] for name in ("Page", "Author"))
    assert page.uuid != before.uuid
    assert page.inputs == (author.uuid,)
    write(root, authors__b="Bob writes.")
    assert {str(each.ref): each.state for each in following.run()} == {
        "Page@global": None,
        "Author@global": JobState.COMPLETED,
    }, "a refresh is the same instance"
    assert [each.state for each in following.run()] == [None, None]


def test_it_travels_from_a_task_with_its_name() -> None:
    error = UpstreamMissing("MergeRequest@42/9970")
    found = unpacked(f"org.apache.spark: {pack(error)} at java")
    assert isinstance(found, UpstreamMissing)
    assert (found.name, str(found)) == (error.name, str(error))
    assert pickle.loads(pickle.dumps(error)).name == error.name


def test_it_travels_from_a_function_of_a_transform_that_spark_calls_by_itself() -> None:
    with pytest.raises(UpstreamMissing) as caught:
        raise UpstreamMissing("MergeRequest@42/9970", where="somewhere")
    raised = "".join(traceback.format_exception(caught.value))
    found = unpacked(f"org.apache.spark.api.python.PythonException: {raised}\n\tat org.apache.spark.api.python\n")
    assert isinstance(found, UpstreamMissing)
    assert found.name == "MergeRequest@42/9970"


TRANSFORM = """
def transform(frame):
    def each(batches):
        for batch in batches:
            for text in batch["text"].to_pylist():
                parse((text or "").encode(), "")
            yield batch

    return frame.mapInArrow(each, frame.schema)
"""


@pytest.mark.proof
def test_a_transform_asks_for_it_within_its_tasks(root: Path) -> None:
    module = root / "code" / f"{module_of(root)}.py"
    module.write_text(module.read_text() + TRANSFORM)
    write(root, authors__a="Ann writes.", pages__p="This needs Author to be read.")
    asking = opened(root, engine="spark", parse=None, transform=f"{module_of(root)}:transform")
    results = asking.run(["Page"])
    assert [str(each.ref) for each in results] == ["Author@global", "Page@global"]
    assert {each.state for each in results} == {JobState.COMPLETED}
    assert asking.failures() == []


@pytest.mark.proof
def test_on_spark_a_task_asks_for_it_too(root: Path) -> None:
    write(root, authors__a="Ann writes.", pages__p="This needs Author to be read.")
    results = opened(root, engine="spark").run(["Page"])
    assert [str(each.ref) for each in results] == ["Author@global", "Page@global"]
    assert {each.state for each in results} == {JobState.COMPLETED}
