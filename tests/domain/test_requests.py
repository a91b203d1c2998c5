"""Requests as values, as JSON and as subjects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.refs import GLOBAL
from instep.domain.requests import (
    MAX_BYTES,
    MAX_WATERMARK,
    GlobalRequest,
    Kind,
    NamespaceRequest,
    Request,
    RequestError,
    decode,
    encode,
    scope_of_dotted,
    subject_of,
)

WATERMARKS = st.integers(0, MAX_WATERMARK)
PATHS = st.lists(st.integers(0, 10**9), min_size=1, max_size=10).map(lambda parts: "/".join(map(str, parts)) + "/")
REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(GlobalRequest, WATERMARKS), st.builds(NamespaceRequest, PATHS, WATERMARKS)
)


@given(REQUESTS)
def test_an_encoded_request_decodes_to_itself(request: Request) -> None:
    data = encode(request)
    assert len(data) <= MAX_BYTES
    assert decode(data) == request


@given(st.binary(max_size=200))
def test_junk_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(RequestError, match=r"request|type"):
        decode(data)


@given(REQUESTS)
def test_a_subject_names_its_scope(request: Request) -> None:
    subject = subject_of(request.scope)
    assert scope_of_dotted(subject.removeprefix("request.")) == request.scope


def test_the_wire_format_of_requests() -> None:
    assert encode(GlobalRequest(7)) == b'{"type":"global","watermark":7}'
    request = NamespaceRequest("42/9970", 8)
    assert encode(request) == b'{"type":"namespace","path":"42/9970/","watermark":8}'
    assert (subject_of(GLOBAL), subject_of(request.scope)) == ("request.global", "request.namespace.42.9970")
    assert Kind.of(request.scope) is Kind.NAMESPACE
    assert Kind.of(GLOBAL) is Kind.GLOBAL


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "must be JSON"),
        (b"\xff", "must be JSON"),
        (b"[" * 1_000, "must be JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "type: must be"),
        (b'{"type":"entity","watermark":1}', "type: must be"),
        (b'{"type":["global"],"watermark":1}', "type: must be"),
        (b'{"type":"global"}', "watermark: is missing"),
        (b'{"type":"global","watermark":1,"path":"1/"}', "path: is not a field of a global request"),
        (b'{"type":"global","watermark":1,"watermark":2}', "must not name a field twice"),
        (b'{"type":"global","watermark":true}', "watermark: must be a whole number"),
        (b'{"type":"global","watermark":1.0}', "watermark: must be a whole number"),
        (b'{"type":"global","watermark":"1"}', "watermark: must be a whole number"),
        (b'{"type":"global","watermark":-1}', "watermark: must be a whole number"),
        (b'{"type":"global","watermark":9223372036854775808}', "watermark: must be a whole number"),
        (b'{"type":"namespace","watermark":1}', "path: is missing"),
        (b'{"type":"namespace","watermark":1,"path":"global"}', "path: must be a traversal path"),
        (b'{"type":"namespace","watermark":1,"path":"a/b"}', "path: must be a traversal path"),
        (b'{"type":"namespace","watermark":1,"path":42}', "path: must be a traversal path"),
        (b'{"type":"namespace","watermark":1,"path":"' + b"1/" * 80 + b'"}', "path: must be a traversal path"),
        (b'{"type":"global","watermark":1}' + b" " * 2_000, "at most 1024 bytes"),
    ],
)
def test_an_invalid_request_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        decode(data)


@pytest.mark.parametrize("text", ["", "42", "namespace", "namespace.", "namespace.a", "namespace.global", "global.1"])
def test_a_text_that_is_no_scope_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        scope_of_dotted(text)
