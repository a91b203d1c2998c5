"""Who may listen: the channel as the whole application serves it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import instep
from instep.api.application import create_app
from tests.api.progress_server import TIMEOUT_SECONDS, served

TOKEN = "a-token-that-is-not-guessed"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> instep.Instep:
    folder: Path = tmp_path_factory.mktemp("project")
    (folder / "docs").mkdir()
    (folder / "instep.yaml").write_text(
        "name: listened\n"
        "targets: {index: {type: lance, uri: .instep/index}}\n"
        "entities: {Document: {source: {type: files, path: docs}, embed: {type: hashing}}}\n"
    )
    return instep.load(folder)


@pytest.fixture(scope="module")
def local(project: instep.Instep) -> Iterator[int]:
    with served(create_app(project, token=TOKEN, loopback=True)) as (port, _):
        yield port


@pytest.fixture(scope="module")
def open_to_all(project: instep.Instep) -> Iterator[int]:
    with served(create_app(project, token=TOKEN, loopback=False)) as (port, _):
        yield port


def first_message(port: int, *, host: str | None = None, **options: Any) -> tuple[str | None, dict[str, Any]]:
    """The protocol that was chosen, and what was said first."""
    address = f"ws://{host or '127.0.0.1'}:{port}/ws"
    with connect(address, sock=_connected(port), open_timeout=TIMEOUT_SECONDS, **options) as client:
        client.send('{"subscribe": "searchIndexJobStatus"}')
        return client.subprotocol, json.loads(client.recv(timeout=TIMEOUT_SECONDS))


def _connected(port: int) -> socket.socket:
    """Here, whatever the host is called."""
    return socket.create_connection(("127.0.0.1", port))


def refused(port: int, **options: Any) -> bool:
    with pytest.raises(InvalidStatus) as refusal:
        first_message(port, **options)
    return refusal.value.response.status_code == 403


def test_on_this_machine_the_page_and_programs_may_listen(project: instep.Instep, local: int) -> None:
    for origin in (None, f"http://127.0.0.1:{local}"):
        protocol, message = first_message(local, origin=origin)
        assert protocol is None
        assert (message["job"], message["error"]) == (None, None)
    assert not project.project.state_dir.exists(), "listening makes no ledger"


def test_pages_of_other_sites_may_not(local: int, open_to_all: int) -> None:
    assert refused(local, origin="http://elsewhere.example")
    assert refused(local, origin="null")
    assert refused(local, host="elsewhere.example", origin=f"http://elsewhere.example:{local}")
    assert refused(
        open_to_all, origin="http://elsewhere.example", additional_headers={"Authorization": f"Bearer {TOKEN}"}
    )


def test_from_other_machines_the_token_is_needed(open_to_all: int) -> None:
    assert refused(open_to_all)
    assert refused(open_to_all, subprotocols=["instep", "instep.token.guessed"])
    protocol, _ = first_message(open_to_all, subprotocols=["instep", f"instep.token.{TOKEN}"])
    assert protocol == "instep", "a browser that is answered with none gives up"
    first_message(open_to_all, additional_headers={"Authorization": f"Bearer {TOKEN}"})
