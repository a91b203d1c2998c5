from __future__ import annotations

import pytest

from instep.servers.address import nats_address


def test_the_parts_of_a_url() -> None:
    address = nats_address("nats://me:p%40ss@one:4222,two,[::1]:4223/shop")
    assert address.servers == ("nats://one:4222", "nats://two", "nats://[::1]:4223")
    assert (address.prefix, address.user, address.password, address.token) == ("shop", "me", "p@ss", None)
    assert address.label == "nats://one:4222,nats://two,nats://[::1]:4223/shop"


def test_a_name_alone_is_a_token() -> None:
    address = nats_address("tls://t0ken@host?tls_ca=/ca.pem&tls_cert=/c.pem&tls_key=/k.pem")
    assert (address.token, address.user, address.tls, address.prefix) == ("t0ken", None, True, "instep")
    assert (address.tls_ca, address.tls_cert, address.tls_key) == ("/ca.pem", "/c.pem", "/k.pem")
    assert nats_address("nats://host").token is None


def test_secrets_are_not_shown() -> None:
    assert "s3cret" not in repr(nats_address("nats://me:s3cret@host"))
    assert "s3cret" not in repr(nats_address("nats://s3cret@host"))


@pytest.mark.parametrize(
    "url",
    [
        "nats://",
        "http://s3cret@host",
        "nats://me:s3@cret@host",
        "nats://s3cret@host/a/b",
        "nats://s3cret@host/a b",
        "nats://s3cret@host?tls_ca=x",
        "tls://s3cret@host?password=x",
        "tls://s3cret@host?tls_key=x",
        "nats://s3cret@host/instep.requests",
    ],
)
def test_an_invalid_address_is_not_repeated_in_the_error(url: str) -> None:
    with pytest.raises(ValueError, match=r"must look like|has ") as caught:
        nats_address(url)
    assert "s3" not in str(caught.value)
