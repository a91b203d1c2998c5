"""A search server that refuses the login is told by `plan` and `check`, with its address and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.saying import said
from tests.doubles.raw_server import answering

#: As the security plug-in of OpenSearch answers.
REFUSED = (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\nConnection: close\r\n\r\nUnauthorized",)


@pytest.mark.parametrize("command", ["plan", "check"])
def test_a_login_that_a_search_server_refuses_is_told_with_the_address_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tides.md").write_text("# Tides\n\nThe moon pulls the sea.\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEARCH_PASSWORD", "s3same")
    with answering(REFUSED) as address:
        (tmp_path / "instep.yaml").write_text(
            "name: sea\nengine: inline\ntargets:\n"
            f"  search: {{type: opensearch, uri: '{address}', user: ann, password: '${{SEARCH_PASSWORD}}'}}\n"
            "entities:\n  Note: {source: {type: files, path: docs}}\n"
        )
        told = " ".join(said(capsys, command, code=1).split())
    assert address in told
    assert "the server refuses: Unauthorized" in told
    assert "Check the target's user and password" in told
    assert "s3same" not in told
