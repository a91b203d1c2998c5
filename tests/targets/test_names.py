"""Names become parts of paths."""

from __future__ import annotations

import pytest

from instep.errors import UserError
from instep.targets.ownership import checked_name


@pytest.mark.parametrize("name", ["a..b", "a..", "..", "a/b", ".a", "", "a" * 201, "a\n"])
def test_what_leads_elsewhere_names_nothing(name: str) -> None:
    with pytest.raises(UserError, match="cannot name an index"):
        checked_name(name)


def test_what_names_an_index() -> None:
    assert checked_name("Document.v2@42=x-1_2") == "Document.v2@42=x-1_2"
