"""`instep worker` with wants for several entities: none waits behind another's work, groups bound how many work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import instep
from instep.app import load
from instep.container import Container
from instep.domain.clock import TIMING
from instep.errors import UserError
from instep.pipeline.engine.inline import InlineEngine
from tests.e2e import corpus
from tests.waiting import until

PROJECT = """
name: both
targets:
  vectors: {type: lance, uri: index}
handlers: {HANDLERS}
entities:
  Slow: {source: {type: files, path: docs, include: "*.md"}, chunk: {size: 800}, embed: {type: hashing, dimensions: 8}}
  Quick: {source: {type: files, path: docs, include: "*.md"}, chunk: {size: 800}, embed: {type: hashing, dimensions: 8}}
"""


def project(folder: Path, handlers: str = "{}") -> instep.Instep:
    corpus.write(folder / "docs", range(3))
    (folder / "instep.yaml").write_text(PROJECT.replace("{HANDLERS}", handlers))
    return load(folder)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, the engine is not ready for `Slow`. Nothing is waited for that has only to pass."""
    defaults: dict[str, object] = Container.__init__.__kwdefaults__  # type: ignore[assignment]  # it has some
    monkeypatch.setitem(defaults, "timing", replace(TIMING, poll=20, stagger=20))
    gate, real = threading.Event(), InlineEngine.ready

    def ready(engine: InlineEngine) -> None:
        if threading.current_thread().name == "worker-Slow":
            gate.wait()
        real(engine)

    monkeypatch.setattr(InlineEngine, "ready", ready)
    return gate


@contextmanager
def working(project: instep.Instep, gate: threading.Event) -> Iterator[None]:
    """A worker in the background, which ends when all is done."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            project.worker(until_idle=True, engine="inline")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        gate.set()
        thread.join(120)
    assert not thread.is_alive()
    assert not failed


def states(project: instep.Instep) -> dict[str, str]:
    return {each.refs[0].partition("@")[0]: str(each.state) for each in project.wants(ended=True)}


def test_a_slow_entity_does_not_delay_another(tmp_path: Path, gate: threading.Event) -> None:
    opened = project(tmp_path)
    opened.want_all()
    with working(opened, gate):
        until(lambda: states(opened)["Quick"] == "Successful", states(opened))
        assert states(opened)["Slow"] != "Successful"
    assert states(opened) == {"Slow": "Successful", "Quick": "Successful"}
    assert opened.workers() == []


def test_a_full_group_waits_and_continues(tmp_path: Path, gate: threading.Event) -> None:
    opened = project(tmp_path, "{global: {group: source, limit: 1}}")
    opened.want(["Slow"])
    with working(opened, gate):
        until(lambda: states(opened)["Slow"] == "Building", states(opened))
        opened.want(["Quick"])
        until(lambda: any(each.name == "worker-Quick" for each in threading.enumerate()))
        assert [each.state for each in opened.jobs()] == ["RUNNING"]
    assert states(opened) == {"Slow": "Successful", "Quick": "Successful"}


def test_partitions_that_are_wanted_together_are_one_job(tmp_path: Path, gate: threading.Event) -> None:
    gate.set()
    opened = project(tmp_path)
    opened.want(["Slow", "Quick"], fresh_within=timedelta(hours=1))
    with working(opened, gate):
        pass
    assert len(opened.jobs()) == 1


def test_an_error_of_one_entity_ends_no_other(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.set()
    opened = project(tmp_path)
    opened.want_all()
    real = Container.setups_of

    def setups_of(self: Container, refs: object) -> object:
        if threading.current_thread().name == "worker-Slow":
            raise UserError("its source has no column `id`")
        return real(self, refs)  # type: ignore[arg-type]

    monkeypatch.setattr(Container, "setups_of", setups_of)
    with working(opened, gate):
        until(lambda: states(opened)["Quick"] == "Successful", states(opened))
    slow = next(each for each in opened.wants(ended=True) if each.refs == ("Slow@global",))
    assert (slow.state, slow.error) == ("Failed", "its source has no column `id`")
