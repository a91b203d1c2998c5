"""What is known as a secret shows in no answer, for people or as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.cli import main

SECRET = "hunter2-s3cret"


@pytest.mark.parametrize("command", ["plan", "run", "diff", "check", "status", "doctor"])
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_problems_of_entities_show_no_secrets(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    more: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIRROR_KEY", SECRET)
    (tmp_path / "instep.yaml").write_text(
        "name: sea\nengine: inline\n"
        "api: {tokens: [{token: '${MIRROR_KEY}-${MIRROR_KEY}', principals: [ann]}]}\n"
        "targets:\n  index: {type: lance, uri: index}\nentities:\n"
        "  Feed: {source: {type: feed, path: '${MIRROR_KEY}-${MIRROR_KEY}/feed.jsonl'}}\n"
        "  Note: {source: {type: files, path: '/nowhere/${MIRROR_KEY}-${MIRROR_KEY}'}}\n"
        "  Odd: {source: {type: files, path: '.', include: ['${MIRROR_KEY}-${MIRROR_KEY}[']}}\n"
    )
    main([command, *more])
    told = capsys.readouterr()
    assert told.out + told.err
    assert SECRET not in told.out + told.err
