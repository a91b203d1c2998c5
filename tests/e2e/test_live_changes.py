"""What changes during a rebuild, with Lance."""

from __future__ import annotations

import pytest

from instep.targets.lance.target import LanceTarget
from tests.e2e import truth
from tests.e2e.conftest import Location
from tests.e2e.rebuilding import rebuilt_while_it_changes


def test_changes_during_a_rebuild_are_served_before_and_after(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    place.declare(extra="engine: inline")
    rebuilt_while_it_changes(place.root, place.docs, LanceTarget, lambda: truth.stored(place.index), monkeypatch)
