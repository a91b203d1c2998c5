"""A small project, served in this process on a free port."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp

from instep.api.application import create_app
from instep.app import Instep, load
from instep.cli.serve import listen

TOKEN = "the-token-of-these-tests"
#: Seconds: a busy machine may take long, and none of these tests is about that.
TIMEOUT_SECONDS = 120.0
PROJECT = """\
name: small
targets:
  lance: {type: lance, uri: .instep/lance}
entities:
  Document:
    source: {type: files, path: docs}
    target: lance
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "instep.yaml").write_text(PROJECT)
    return tmp_path


def write(folder: Path, count: int, *, rows: int = 1) -> None:
    """So many documents, each of about so many rows."""
    for number in range(count):
        words = " ".join(f"word{number}x{place}" for place in range(rows * 120))
        (folder / "docs" / f"{number:03}.md").write_text(f"# Document {number}\n\n{words}\n")


@pytest.fixture
def instep(folder: Path) -> Instep:
    return load(folder)


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Its address."""
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def client(instep: Instep) -> Iterator[httpx.Client]:
    """A client with the token. Without certificates, which take a while to load: nothing here is encrypted."""
    app = create_app(instep, token=TOKEN, loopback=True)
    with (
        served(app) as address,
        httpx.Client(base_url=address, headers=bearer(), timeout=TIMEOUT_SECONDS, verify=False) as found,
    ):
        yield found
