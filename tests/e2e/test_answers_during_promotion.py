"""An answer is that of one build, though another one is promoted while it is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from instep.answers import readers
from instep.app import Instep
from instep.entities.documents.setup import DocumentSetup
from tests.retrievers.notes import NOTES, indexed


@pytest.fixture
def project(tmp_path: Path) -> Instep:
    return indexed(tmp_path)


@pytest.fixture
def promoted_before(project: Instep, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], None]:
    """Have another build promoted just before this step of an answer, once."""

    def prepare(owner: Any, name: str) -> None:
        step, waiting = getattr(owner, name), [True]

        @wraps(step)
        def after_a_promotion(*arguments: Any) -> Any:
            if waiting:
                waiting.clear()
                project.run(full_refresh=True)
            return step(*arguments)

        monkeypatch.setattr(owner, name, after_a_promotion)

    return prepare


def test_a_status_counts_the_documents_of_the_new_build(
    project: Instep, promoted_before: Callable[[Any, str], None]
) -> None:
    (before,) = project.status()
    promoted_before(DocumentSetup, "size")
    (found,) = project.status()
    assert found.instance != before.instance
    assert found.documents == len(NOTES)


def test_the_origin_of_a_row_is_told_from_the_new_build(
    project: Instep, promoted_before: Callable[[Any, str], None]
) -> None:
    hit = project.search("zebra")[0]
    promoted_before(readers, "build_of")
    found = project.why("Note", hit.chunk_id, principals=["public"])
    assert found.row["source_uri"] == hit.source_uri
    assert found.row["instance"] != hit.instance
