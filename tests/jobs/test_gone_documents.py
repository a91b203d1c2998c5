"""Documents that a store lists, and does not have when they are to be read, for good: who watches it goes on calmly."""

from __future__ import annotations

from pathlib import Path

import pytest

import instep
from instep.pipeline.engine.inline import InlineEngine
from tests.sources.unsteady import Unsteady, unsteady

__all__ = ["unsteady"]


class _Endless(BaseException):
    """It would go on like this."""


@pytest.fixture
def project(tmp_path: Path, unsteady: Unsteady) -> instep.Instep:
    (tmp_path / "instep.yaml").write_text(
        "name: shelf\nengine: inline\ntargets:\n  index: {type: lance, uri: index}\n"
        f"entities:\n  Note: {{source: {{type: files, path: '{unsteady.url}'}}}}\n"
    )
    return instep.load(tmp_path)


def test_they_are_looked_for_again_after_a_pause(
    project: instep.Instep, unsteady: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job a second was made of them."""
    unsteady.unread["/a.md"] = FileNotFoundError(2, "not there")
    run, waves = InlineEngine.run, list[str]()

    def counted(engine: InlineEngine, wave: object, *rest: object) -> object:
        waves.append("")
        if len(waves) > 4:
            raise _Endless
        return run(engine, wave, *rest)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(InlineEngine, "run", counted)
    project.worker(watch=0.01, until_idle=True)
    assert 2 <= len(waves) <= 3, "the build of all, and two tries; or one, if the first took longer than its pause"
    waves.clear()
    unsteady.put({"d.md": b"# D\n\ndelta\n"})
    project.worker(watch=0.01, until_idle=True)
    assert {hit.title for hit in project.search("delta")} == {"D"}
