"""What users are told when an argument is wrong, a package is missing, or nothing was written."""

from __future__ import annotations

import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import instep
from instep.container import Container
from instep.domain.jobs import Phase
from instep.errors import UserError
from instep.project import Project
from tests.jobs.projects import home


@pytest.mark.parametrize(
    "ask",
    [
        lambda project, five: project.search("tide", limit=five),
        lambda project, five: project.search("tide", offset=five),
        lambda project, five: project.jobs(limit=five),
        lambda project, five: project.failures(limit=five),
        lambda project, five: project.history("Document", limit=five),
        lambda project, five: project.wants(limit=five),
    ],
    ids=["search", "offset", "jobs", "failures", "history", "wants"],
)
@pytest.mark.parametrize("five", ["5", 5.0, True, None])
def test_what_is_no_whole_number_is_told_with_what_is_allowed(
    tmp_path: Path, ask: Callable[..., object], five: object
) -> None:
    project = home(tmp_path).open()
    with pytest.raises(UserError) as raised:
        ask(project, five)
    assert raised.value.what in (f"limit is {five!r}", f"offset is {five!r}")
    assert "a whole number" in (raised.value.hint or "")


def declared(root: Path, source: dict[str, Any], **more: Any) -> instep.Instep:
    targets = {"main": {"type": "lance", "uri": "index"}}
    whole = {
        "name": "p",
        "root": root,
        "targets": targets,
        "entities": {"Row": {"source": source, **more.pop("of", {})}},
    }
    return instep.Instep(Project.model_validate({**whole, **more}))


def test_nobody_is_advised_to_say_inline_where_that_does_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.pipeline.engine.installed.pyspark_installed", lambda: False)
    table = declared(tmp_path, {"type": "spark", "path": "rows"}, of={"key": "id"})
    said = declared(tmp_path, {"type": "files", "path": "docs"}, engine="inline")
    for ask in (table.plan, Container(said.project).engines.spark):
        with pytest.raises(UserError) as raised:
            ask()
        assert raised.value.hint == "Run: pip install 'instep[spark]'."


def test_documents_on_spark_may_be_inline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.pipeline.engine.installed.pyspark_installed", lambda: False)
    with pytest.raises(UserError, match="say `engine: inline`"):
        declared(tmp_path, {"type": "files", "path": "docs"}, engine="spark").plan()


def test_a_run_that_wrote_nothing_names_no_phases(tmp_path: Path) -> None:
    place = home(tmp_path)
    place.run()
    place.path(10).parent.mkdir(exist_ok=True)
    place.path(10).write_text(" \n")
    blank = place.run()
    assert blank.job_id is not None
    assert (blank.counts.written, blank.counts.skipped) == (0, 1)
    assert not {each.kind for each in place.open().job_log(blank.job_id)} & set(Phase)


def test_a_plan_says_that_the_embedder_is_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    documents = {"type": "files", "path": "docs"}

    def warnings(port: int) -> tuple[str, ...]:
        embed = {"type": "openai", "url": f"http://127.0.0.1:{port}/v1", "model": "m", "dimensions": 4}
        (plan,) = declared(tmp_path, documents, of={"embed": embed}, engine="inline").plan()
        return plan.warnings

    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        assert warnings(server.server_port) == (), "nobody looks where there is nothing to embed"
        (tmp_path / "docs" / "a.md").write_text("tide")
        server.timeout = 5.0
        thread = Thread(target=server.handle_request)
        thread.start()
        assert warnings(server.server_port) == ()
        thread.join()
    (warning,) = warnings(server.server_port)
    place = rf"the embedder at http://127\.0\.0\.1:{server.server_port}/v1"
    assert re.fullmatch(rf"a run would wait: {place} is out of reach: ConnectError", warning)
