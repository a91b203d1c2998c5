"""Documents in an object store that throttles, breaks off, and goes away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from instep.errors import Transient
from instep.sources.document_source import Content, Unread, Unreadable
from instep.sources.files import FilesSource
from tests.servers.proxy import Proxy
from tests.servers.s3 import S3Server, running_s3

_NUMBER = 30
#: A run reads again what the one before could not: so many do.
_RUNS = 20


@pytest.fixture(scope="module")
def store() -> S3Server:
    server = running_s3()
    for number in range(_NUMBER):
        server.files().pipe(f"{server.bucket}/throttled/{number}.md", f"text {number}".encode())
    return server


@pytest.fixture(autouse=True)
def _few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client tries five times, with pauses that grow; and so does fsspec, around it."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.fixture
def proxy(store: S3Server) -> Iterator[Proxy]:
    made = Proxy(store.port, seed=3)
    yield made
    made.close()


def source(store: S3Server, proxy: Proxy) -> FilesSource:
    options = {"key": store.user, "secret": store.password, "endpoint_url": f"http://127.0.0.1:{proxy.port}"}
    # A client of its own, which remembers nothing of other tests.
    return FilesSource((f"s3://{store.bucket}/throttled",), storage_options={**options, "skip_instance_cache": True})


def test_throttled_and_broken_requests_lose_no_document(store: S3Server, proxy: Proxy) -> None:
    proxy.slow = proxy.resets = 0.1
    files = source(store, proxy)
    listing = next(each for each in (files.list() for _ in range(_RUNS)) if each.complete)
    missing, found = list(listing.documents), list[bytes]()
    for _ in range(_RUNS):
        answers = list(zip(missing, files.contents(missing, max_bytes=1_000), strict=True))
        found += [answer.data for _, answer in answers if isinstance(answer, Content)]
        # What could not be read is tried again, and not taken for gone.
        missing = [document for document, answer in answers if isinstance(answer, Unread)]
        assert len(missing) + len(found) == _NUMBER
    assert sorted(found) == sorted(f"text {number}".encode() for number in range(_NUMBER))
    assert proxy.done["slowed"] > 0
    assert proxy.done["reset"] > 0


def test_a_store_that_is_away_is_no_fault_of_a_document(store: S3Server, proxy: Proxy) -> None:
    files = source(store, proxy)
    listed = files.list().documents
    proxy.away = True
    with pytest.raises(Transient, match="does not answer"):
        list(files.contents(listed[:1], max_bytes=1_000))
    proxy.away = False
    (answer,) = files.contents(listed[:1], max_bytes=1_000)
    assert isinstance(answer, Content)


def test_a_document_that_cannot_be_read_though_the_store_answers_is_its_own(store: S3Server, proxy: Proxy) -> None:
    files = source(store, proxy)
    (first, *_) = files.list().documents
    proxy.breaks = f"/{first.uri.rpartition('/')[2]}"
    (answer,) = files.contents([first], max_bytes=1_000)
    assert isinstance(answer, Unreadable)
