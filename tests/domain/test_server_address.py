"""URLs of ledgers on servers: their parts, and what of them may be shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.servers.address import ServerAddress, server_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgres://h/db", ServerAddress("postgresql", "postgres", "h", None, "db")),
        (
            "postgresql://ann:p%40ss%2Fw%3A@db.example.com:6543/my%20db?sslmode=require&options=-c%20a%3Db",
            ServerAddress(
                *("postgresql", "postgresql", "db.example.com", 6543, "my db", "ann", "p@ss/w:"),
                {"sslmode": "require", "options": "-c a=b"},
            ),
        ),
        (
            "postgresql+psycopg://ann@[::1]:5432/db",
            ServerAddress("postgresql", "postgresql", "::1", 5432, "db", "ann"),
        ),
        (
            "postgresql:///db?host=/run/pg",
            ServerAddress("postgresql", "postgresql", "", None, "db", options={"host": "/run/pg"}),
        ),
        ("mariadb://ann:@h/db", ServerAddress("mysql", "mariadb", "h", None, "db", "ann", "")),
        ("mysql+pymysql://h/db", ServerAddress("mysql", "mysql", "h", None, "db")),
    ],
)
def test_the_parts_of_a_url(url: str, address: ServerAddress) -> None:
    assert server_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@h",
        "postgresql://ann:s3cret@h/",
        "postgresql://ann:s3/cret@h/db",
        "postgresql://ann:s3@cret@h/db",
        "postgresql://ann:s3:cret@h/db",
        "postgresql://ann:s3?cret@h/db",
        "postgresql://ann:s3#cret@h/db",
        "postgresql://ann:s3 cret@h/db",
        "postgresql://ann:s3cret@h:port/db",
        "postgresql://ann:s3cret@h:5432:1/db",
        "postgresql://ann:s3cret@h/db/s3cret",
        "postgresql://ann:s3cret@h/db\n",
        "postgresql:///ann:?s3cret@h/db",
    ],
)
def test_an_ambiguous_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="must look like postgresql://") as refused:
        server_address(url)
    assert "cret" not in str(refused.value)


@given(st.text(), st.text())
def test_no_url_that_is_taken_shows_its_password(user: str, password: str) -> None:
    url = f"postgresql://{user}:{password}@host.example/db?x={password}"
    try:
        address = server_address(url)
    except ValueError:
        return
    assert address.label == "postgresql://host.example/db"
    assert repr(address) == repr(server_address("postgresql://host.example/db"))
