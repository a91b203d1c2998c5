"""What every target for tables promises, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from instep.testing.ownership import TableOwnership
from instep.testing.table_rows import ODD_ROWS
from instep.testing.table_target import TableTargetContract
from tests.contracts.target_in_short import ShortTableContract


class OnPostgres:
    #: PostgreSQL has no U+0000 in text.
    odd_rows: ClassVar[Sequence[Mapping[str, Any]]] = tuple(
        {**row, "select": row["select"].replace("\0", "\x01")} for row in ODD_ROWS
    )
    unfit_rows: ClassVar[Mapping[int, tuple[str, str]]] = {
        1: ("a b\"c'd\\e", "a key of more than 2500 bytes"),
        2: ("string", "text with the character U+0000"),
        3: ("select", "text with the character U+0000"),
    }


@pytest.mark.proof
class TestPostgres(OnPostgres, TableTargetContract):
    """All of it."""


class TestPostgresInShort(OnPostgres, ShortTableContract):
    pass


class TestOwnership(TableOwnership):
    """With the `target` of this folder."""
