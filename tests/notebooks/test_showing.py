"""Results are readable in a prompt and in a notebook, and become tables."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from rich.console import Console

import instep
from instep.answers import jobs
from instep.answers.answer import as_json
from instep.domain.counts import Counts
from instep.errors import UserError
from tests.notebooks.notes import PROJECT


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> instep.Instep:
    folder = tmp_path_factory.mktemp("notes")
    (folder / "docs").mkdir()
    (folder / "docs" / "tides.md").write_text(
        "# Tides & <b>more</b>\n\nThe moon pulls <i>the</i> sea.\n" + "wave " * 60
    )
    (folder / "docs" / "winds.md").write_text("# Winds\n\nThe wind fills the sails.\n")
    (folder / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 this is none")
    (folder / "instep.yaml").write_text(PROJECT)
    return instep.load(folder)


@pytest.fixture(scope="module")
def runs(project: instep.Instep) -> instep.Runs:
    return project.run()


def cells(html: str) -> list[str]:
    return re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", html)


def test_a_result_has_the_names_that_json_has(runs: instep.Runs) -> None:
    [result] = runs
    [told] = as_json(list(runs.answers()))
    assert (str(result.ref), result.generation, str(result.kind)) == (told["ref"], told["generation"], told["kind"])
    assert told["ref"] == "Note@global"


def test_a_run_is_a_line_for_each_partition_and_a_table(runs: instep.Runs) -> None:
    assert repr(runs) == ("[\n  EntityResult(Note@global COMPLETED_WITH_ERRORS: 2 written, 1 failed, 0 unchanged),\n]")
    shown = cells(runs._repr_html_())
    assert shown[: shown.index("state") + 1] == ["ref", "kind", "state"], "what says nothing is no column"
    assert "2 written, 1 failed" in shown


def test_a_hit_is_a_line_of_what_matters(project: instep.Instep, runs: instep.Runs) -> None:
    [hit] = project.search("wind", limit=1)
    assert repr(hit) == (
        f"Hit(score={hit.score:.4g}, title='Winds', source_uri='project:///docs/winds.md', "
        "snippet='# Winds The wind fills the sails.')"
    )
    [long] = project.search("moon", limit=1)
    assert len(repr(long)) < 250


def test_hits_are_a_table_with_the_words_that_match_and_nothing_of_the_documents_is_html(
    project: instep.Instep, runs: instep.Runs
) -> None:
    html = project.search("moon", limit=1)._repr_html_()
    assert cells(html)[:4] == ["score", "title", "source_uri", "snippet"]
    assert cells(html)[5] == "Tides &amp; &lt;b&gt;more&lt;/b&gt;"
    assert "The <mark>moon</mark> pulls &lt;i&gt;the&lt;/i&gt; sea." in html
    assert project.search("wind", where="title = 'none'")._repr_html_() == "<em>nothing found</em>"


def test_other_answers_are_tables_with_times_that_can_be_read(project: instep.Instep, runs: instep.Runs) -> None:
    [status] = project.status()
    when = re.search(r"watermark=(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)", repr(status))
    assert when
    assert "ref=Note@global" in repr(status)
    assert when[1] in cells(project.status()._repr_html_())
    assert [f"<b>{name}</b>" for name in ("ref", "state")] == [
        each for each in cells(status._repr_html_()) if each in ("<b>ref</b>", "<b>state</b>")
    ]
    assert "broken.pdf" in project.failures()._repr_html_()
    assert (repr(project.wants()), project.wants()._repr_html_()) == ("[]", "<em>nothing</em>")
    assert repr(project) == f"Instep('notes', in {project.project.root})"


def test_hits_become_a_table_in_arrow_that_is_the_same_without_any(project: instep.Instep, runs: instep.Runs) -> None:
    found = project.search("moon")
    table = found.to_arrow()
    assert table.column_names == list(instep.Hit.model_fields)
    assert table["chunk_id"].to_pylist() == [each.chunk_id for each in found]
    assert table["marks"].to_pylist() == [[list(mark) for mark in each.marks] for each in found]
    assert table.schema.field("watermark").type == pa.timestamp("ms", tz="UTC")
    assert table["watermark"].cast(pa.int64()).to_pylist() == [each.watermark for each in found]
    assert project.search("moon", where="title = 'none'").to_arrow().schema == table.schema


def test_hits_become_a_data_frame(project: instep.Instep, runs: instep.Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    found = project.search("moon")
    frame = found.to_pandas()
    assert list(frame["title"]) == [each.title for each in found]
    monkeypatch.setattr("instep.answers.hits.find_spec", lambda _: None)
    with pytest.raises(UserError, match="needs pandas"):
        found.to_pandas()


def test_counts_of_an_answer_read_like_those_of_a_result() -> None:
    counts = Counts(read=3, written=2, failed=1)
    assert str(jobs.Counts.model_validate(counts)) == str(counts) == "2 written, 1 failed"


def test_bars_in_a_notebook_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.telemetry.bar_progress.find_spec", lambda _: None)
    with pytest.raises(UserError, match="ipywidgets"):
        instep.Bars(Console(force_jupyter=True))
    with instep.Bars(Console(force_jupyter=False, quiet=True)) as progress:
        told: instep.Progress = progress
        told.begin("Note", 1, "document")


def test_every_name_of_the_package_is_there_and_listed_for_completion() -> None:
    assert set(dir(instep)) == set(instep.__all__)
    assert all(getattr(instep, name) for name in instep.__all__)
    homes = [name for names in instep._HOMES.values() for name in names]
    assert sorted([*homes, "__version__"]) == sorted(instep.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Hitt'"):
        instep.Hitt  # type: ignore[attr-defined]  # noqa: B018


def test_hits_are_a_list_that_json_has_as_one(project: instep.Instep, runs: instep.Runs) -> None:
    found = project.search("moon")
    assert found == list(found)
    assert as_json(found) == [each.model_dump(mode="json") for each in found]


def test_a_path_in_place_of_a_project_is_answered_with_the_function_that_takes_one() -> None:
    with pytest.raises(UserError, match=r"Instep takes a Project, not str; `instep\.load\(path\)` opens a file"):
        instep.Instep("instep.yaml")  # type: ignore[arg-type]  # as in a notebook, which nobody checks
