"""Status keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.bus.bus import Bus
from instep.domain.status import StatusKeyError
from instep.errors import Conflict
from tests.contracts.bus.fixtures import Fixtures

KEY = "status.42.9970.MergeRequest"


class Status(Fixtures):
    def test_a_key_has_a_value_and_a_revision(self, buses: Callable[[], Bus]) -> None:
        here, there = buses().status, buses().status
        assert here.get(KEY) is None
        first = here.put(KEY, {"state": "Indexing", "rows": 3, "names": ["é", None]})
        entry = there.get(KEY)
        assert entry is not None
        assert (entry.key, entry.revision, entry.unreadable) == (KEY, first, None)
        assert entry.value == {"state": "Indexing", "rows": 3, "names": ["é", None]}
        assert there.put(KEY, {"state": "Indexed"}) > first

    def test_a_revision_guards_a_key(self, bus: Bus) -> None:
        status = bus.status
        first = status.put(KEY, {"n": 1}, revision=0)
        with pytest.raises(Conflict):
            status.put(KEY, {"n": 2}, revision=0)
        second = status.put(KEY, {"n": 2}, revision=first)
        for late in (lambda: status.put(KEY, {}, revision=first), lambda: status.delete(KEY, revision=first)):
            with pytest.raises(Conflict):
                late()
        entry = status.get(KEY)
        assert entry is not None
        assert (entry.value, entry.revision) == ({"n": 2}, second)

    def test_a_deleted_key_is_gone_and_its_revisions_never_come_back(self, bus: Bus) -> None:
        status = bus.status
        status.delete(KEY)
        first = status.put(KEY, {"n": 1})
        status.delete(KEY, revision=first)
        status.delete(KEY)
        assert status.get(KEY) is None
        assert status.under("status") == []
        with pytest.raises(Conflict):
            status.put(KEY, {"n": 2}, revision=first)
        assert status.put(KEY, {"n": 2}, revision=0) > first

    def test_the_keys_under_a_prefix(self, bus: Bus) -> None:
        status = bus.status
        keys = ["status.42", "status.42.9970", "status.42.9970.Issue", "status.42.9970.issue", "status.42.9970.a_b"]
        others = ["status.421.Issue", "status.42.99701", "status.42.9970x.Issue", "status.42.9970.aXb", "status.User"]
        for key in keys + others:
            status.put(key, {"key": key})
        status.delete("status.42")
        found = status.under("status.42.9970")
        assert [each.key for each in found] == sorted(
            [
                "status.42.9970",
                "status.42.9970.Issue",
                "status.42.9970.aXb",
                "status.42.9970.a_b",
                "status.42.9970.issue",
            ]
        )
        assert all(each.value == {"key": each.key} for each in found)
        assert len(status.under("status")) == len(keys + others) - 1
        assert status.under("status.43") == []

    @pytest.mark.parametrize("junk", [b"", b"{", b"[1]", b'"Indexed"', b"\xff\xfe".decode("latin-1").encode(), b"null"])
    def test_an_unreadable_status_is_reported_not_dropped(
        self, bus: Bus, spoil: Callable[[str, bytes], None], junk: bytes
    ) -> None:
        status = bus.status
        status.put("status.42.Issue", {})
        spoil(KEY, junk)
        entry = status.get(KEY)
        assert entry is not None
        assert entry.value is None
        assert entry.unreadable
        assert status.under("status.42.9970") == [entry]
        assert len(status.under("status.42")) == 2
        assert status.put(KEY, {"n": 1}, revision=entry.revision) > entry.revision

    @pytest.mark.parametrize(
        "key", ["", "status", "status.", "state.42", "status.4*", "status.a..b", "status.a\n", "status.>"]
    )
    def test_not_a_key(self, bus: Bus, key: str) -> None:
        for refuse in (bus.status.get, bus.status.delete, lambda key: bus.status.put(key, {})):
            with pytest.raises(StatusKeyError):
                refuse(key)
        if key != "status":
            with pytest.raises(StatusKeyError):
                bus.status.under(key)

    def test_values_are_bounded(self, bus: Bus) -> None:
        with pytest.raises(StatusKeyError):
            bus.status.put(KEY, {"error": "x" * 20_000})
        with pytest.raises(ValueError, match="JSON"):
            bus.status.put(KEY, {"rows": float("nan")})
        assert bus.status.get(KEY) is None
