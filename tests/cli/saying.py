"""What commands say, run in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from instep.cli import main


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What a command printed; its errors too when it should fail."""
    capsys.readouterr()
    assert main(list(arguments)) == code, capsys.readouterr()
    out = capsys.readouterr()
    assert "Traceback" not in out.err
    return out.out + out.err if code else out.out


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    """Its JSON, without what stands on standard error."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def widest(text: str) -> int:
    return max(len(line.rstrip()) for line in text.splitlines())
