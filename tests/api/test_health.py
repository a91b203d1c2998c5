"""Probes of a real server."""

from __future__ import annotations

import httpx
import pytest

from instep.api import health
from instep.api.application import create_app
from instep.app import Instep
from tests.api.conftest import TOKEN, served


def test_probes_need_no_token_and_tell_a_ledger_that_is_away(instep: Instep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "SECONDS", 0.0)
    folder = instep.project.root / ".instep"
    with served(create_app(instep, token=TOKEN, loopback=False)) as address:
        assert [httpx.get(f"{address}{path}").status_code for path in ("/healthz", "/readyz", "/api/jobs")] == [
            200,
            200,
            401,
        ]
        folder.mkdir(exist_ok=True)
        (folder / "ledger.db").write_bytes(b"this is no database, and nothing can be read from it" * 100)
        assert httpx.get(f"{address}/healthz").status_code == 200
        found = httpx.get(f"{address}/readyz")
        assert (found.status_code, found.text) == (503, "the ledger does not answer\n")
