"""Everything is rebuilt while the source changes: readers find the changes before the alias moves, and after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.entities import setup as setups
from instep.jobs import live_refresh
from instep.ledger.slices import Slices
from tests.e2e import corpus, truth


def rebuilt_while_it_changes(
    root: Path, docs: Path, target: type[Any], content: Callable[[], truth.Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`target` is the class of the project's, `content` what readers of the alias find."""
    monkeypatch.setattr(setups, "MOST_CLAIMS", 1)
    monkeypatch.setattr(live_refresh, "LOOK_SECONDS", 0.0)
    instep.load(root).run()
    claim, promote = Slices.claim, target.promote
    left, found = [1], list[str]()

    def changing(*args: Any, **kwargs: Any) -> Any:
        claims = claim(*args, **kwargs)
        if left.pop() if left else 0:
            corpus.path(docs, 1).write_text("# Changed\n\nAnd zebras.\n")
            corpus.path(docs, 3).unlink()
            (docs / "new.md").write_text("# New\n\nAnd okapis.\n")
        return claims

    def looking(*args: Any) -> None:
        found.append(truth.difference(truth.expected(docs), content()))
        promote(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Slices, "claim", changing)
        patch.setattr(target, "promote", looking)
        (result,) = instep.load(root).run(full_refresh=True)
    assert result.promoted
    assert found == [""], "before the alias moved"
    assert truth.difference(truth.expected(docs), content()) == ""
    assert instep.load(root).run()[0].state is None
