"""A status is that of one build, though another one is promoted while it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.entities.documents.setup import DocumentSetup
from instep.entities.setup import Size
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from tests.retrievers.notes import NOTES, indexed


def test_a_status_read_across_a_promotion_counts_the_documents_of_the_new_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = indexed(tmp_path)
    (before,) = project.status()
    size, waiting = DocumentSetup.size, [True]

    def rebuilt_first(setup: DocumentSetup, ledger: Ledger, checkpoint: Checkpoint) -> Size:
        if waiting:
            waiting.clear()
            project.run(full_refresh=True)
        return size(setup, ledger, checkpoint)

    monkeypatch.setattr(DocumentSetup, "size", rebuilt_first)
    (found,) = project.status()
    assert not waiting
    assert found.instance != before.instance
    assert found.documents == len(NOTES)
