"""Names become parts of paths."""

from __future__ import annotations

import pytest

from instep.errors import UserError
from instep.targets.ownership import checked_name


@pytest.mark.parametrize("name", ["a..b", "a..", "..", "a/b", ".a", "", "a" * 201, "a\n"])
def test_an_index_name_that_is_a_path_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="cannot name an index"):
        checked_name(name)


def test_a_valid_index_name_is_taken() -> None:
    assert checked_name("Document.v2@42=x-1_2") == "Document.v2@42=x-1_2"
