"""Comparing targets with what they should hold: the contract on Lance, and what is nobody's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep.documents import comparing
from instep.errors import Away, UserError
from instep.service.wave import WaveRunner
from instep.targets.lance import LanceTarget
from tests.contracts.document_diff import CLEAN, DiffContract, identity, repaired, seen

from .projects import home
from .tampering import Tamperer


class TestLance(DiffContract):
    def setting(self, folder: Path) -> str:
        return "{type: lance, uri: .instep/index}"


def test_nothing_is_compared_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing is built"):
        home(tmp_path).open().diff()


def test_while_a_job_has_not_ended_the_target_is_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path)
    place.run()
    Tamperer(place).change(identity(place, 2), lambda row: [])
    place.change(1, "one line more")

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WaveRunner, "_record", die)  # It is in the target, and nobody knows of it.
        with pytest.raises(KeyboardInterrupt):
            place.run()
    with pytest.raises(Away, match="has not ended"):
        seen(place)
    repaired(place)  # It ends the job first.
    assert not seen(place).pending.changes


def test_a_job_that_ends_meanwhile_makes_a_comparison_worthless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = home(tmp_path)
    place.run()
    compare = comparing.compare

    def slowly(*args: Any) -> Any:
        found = compare(*args)
        place.change(1, "one line more")
        place.run()
        return found

    monkeypatch.setattr(comparing, "compare", slowly)
    with pytest.raises(Away, match="while it was compared"):
        seen(place)


def test_what_failed_is_said(tmp_path: Path) -> None:
    place = home(tmp_path)
    place.run()
    place.path(1).write_bytes(b"\x00\x01broken\x00")
    assert place.run().counts.failed == 1
    Tamperer(place).change(identity(place, 1), lambda row: [])
    found = seen(place)
    (document,) = found.as_dict()["documents"]
    assert (document["kind"], document["failed"]) == ("missing", True)
    assert found.pending.known_failures == 1
    (result,) = place.open().repair()
    assert result.counts.failed == 1
    assert seen(place).counts == {**CLEAN, "missing": 1}


def test_an_alias_that_leads_elsewhere_is_moved_back(tmp_path: Path) -> None:
    place = home(tmp_path)
    place.run()
    target = LanceTarget(str(tmp_path / ".instep" / "index"))
    for alias in (tmp_path / ".instep" / "index").glob("Document.alias-*.json"):
        alias.unlink()
    assert target.served("Document") is None
    assert seen(place).differs
    repaired(place)
    assert target.served("Document") is not None


def test_documents_of_an_older_ledger_are_compared_by_their_number_of_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from instep.ledger.sql.ledger import SqlLedger

    place = home(tmp_path)
    place.run()
    manifest = SqlLedger.manifest

    def without_digests(self: SqlLedger, instance: str) -> object:
        return {uri: entry._replace(digest=None) for uri, entry in manifest(self, instance).items()}

    monkeypatch.setattr(SqlLedger, "manifest", without_digests)
    Tamperer(place).change(identity(place, 1), lambda row: [row | {"chunk_hash": "0" * 64}])
    Tamperer(place).change(identity(place, 2), lambda row: [row] if row["chunk_index"] else [])
    assert seen(place).counts == {**CLEAN, "missing": 1}
