"""Addresses of Spark as they are shown: a token is left out wherever it was written."""

from __future__ import annotations

import pytest

from instep.pipeline.engine.settings import without_token


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("sc://host:15002", "sc://host:15002"),
        ("sc://host:15002/;token=hidden;user_id=ann", "sc://host:15002/"),
        ("sc://ann:hidden@host:15002", "sc://host:15002"),
        ("sc://hidden@host:15002/;x=1", "sc://host:15002"),
        ("sc://host:15002/?token=hidden", "sc://host:15002/"),
        ("sc://host#hidden", "sc://host"),
        ("local[*]", "local[*]"),
        ("spark://one:7077,two:7077", "spark://one:7077,two:7077"),
        ("k8s://https://host:443", "k8s://https://host:443"),
    ],
)
def test_an_address_is_shown_without_its_token(address: str, shown: str) -> None:
    assert without_token(address).removesuffix("/") == shown.removesuffix("/")
