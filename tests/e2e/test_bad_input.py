"""Broken documents go to the failure list with path and reason; everything else is indexed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.domain.jobs import JobState
from instep.domain.waves import TaskOutcome, Wave
from instep.errors import UserError
from instep.pipeline.engine.inline import InlineEngine
from instep.telemetry.progress import Silent

from . import corpus, truth
from .conftest import Location


def _broken(folder: Path) -> dict[str, str]:
    """Documents that cannot be indexed, and a word of the reason each must get."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latin.md").write_bytes(b"caf\xe9 au lait\n")
    (folder / "binary.md").write_bytes(b"a\x00b\x00c\n")
    (folder / "line.md").write_bytes(b"x" * 50_000_000)
    (folder / "cut.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Ty")
    return {"latin.md": "UTF-8", "binary.md": "NUL", "line.md": "line", "cut.pdf": "PDF"}


def _include_pdf(place: Location) -> None:
    file = place.root / "instep.yaml"
    file.write_text(file.read_text().replace('"**/*.md"', '"**/*.md", "**/*.pdf"'))


def test_broken_documents_are_listed_with_path_and_reason_and_their_neighbours_are_indexed(place: Location) -> None:
    reasons = _broken(place.docs / "broken")
    _include_pdf(place)
    result = place.run()
    assert result.state is JobState.COMPLETED_WITH_ERRORS
    assert result.promoted
    assert (result.counts.written, result.counts.failed) == (60, 4)
    failures = {Path(record.uri).name: record for record in place.open().failures()}
    assert failures.keys() == reasons.keys()
    for name, word in reasons.items():
        assert word.lower() in failures[name].reason.lower(), failures[name].reason
    assert place.wrong(keep=lambda path: path.parent.name != "broken") == ""


@pytest.mark.parametrize("at", [0, -1])
def test_a_document_that_breaks_every_wave_is_found_among_its_neighbours(
    place: Location, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Wherever it is in its slice: what fails again and again is not taken for hopeless while others succeed."""
    place.declare(entity="buckets: 1")
    real, poison = InlineEngine.run, set[str]()

    def run(self: InlineEngine, wave: Wave, *rest: Any) -> Sequence[TaskOutcome]:
        uris = [change.uri for part in wave.slices for change in part.changes]
        poison.add(next(iter(poison), uris[at]))
        if poison & set(uris):
            raise RuntimeError("out of memory")
        return real(self, wave, *rest)

    monkeypatch.setattr(InlineEngine, "run", run)
    result = place.run()
    assert result.state is JobState.COMPLETED_WITH_ERRORS
    assert (result.counts.written, result.counts.failed) == (59, 1)
    (failure,) = place.open().failures()
    assert failure.reason == "its slice ended badly 4 times; the last time: RuntimeError: out of memory"
    assert poison == {failure.uri}
    assert place.wrong(keep=lambda path: path.name != Path(failure.uri).name) == ""


def test_a_build_says_how_many_documents_have_no_text(place: Location) -> None:
    for name, text in {"empty": "", "blank": " \n\n", "front": "---\ntitle: No more than that\n---\n"}.items():
        (place.docs / f"{name}.md").write_text(text)
    result = place.run()
    assert (result.state, result.counts.written, result.counts.skipped) == (JobState.COMPLETED, 60, 3)
    (note,) = result.notes
    assert note.startswith("3 of 63 documents have no text")
    corpus.path(place.docs, 7).write_text("# Seven\n\nAnother text.\n")
    assert place.run().notes == []


def test_a_known_failure_is_not_retried_until_it_changes_or_is_requested(place: Location) -> None:
    _broken(place.docs / "broken")
    _include_pdf(place)
    place.run()
    again = place.run()
    assert again.state is None
    assert again.plan.found.counts["known_failures"] == 4
    asked = place.run(retry_failures=True)
    assert (asked.counts.read, asked.counts.failed) == (4, 4)
    assert all(record.attempts == 2 for record in place.open().failures())
    (place.docs / "broken" / "latin.md").write_text("café au lait\n")
    mended = place.run()
    assert mended.counts.written == 1
    (place.docs / "broken" / "binary.md").unlink()
    place.run()
    assert {Path(record.uri).name for record in place.open().failures()} == {"line.md", "cut.pdf"}


def test_an_indexed_document_that_breaks_keeps_serving_its_last_good_version(place: Location) -> None:
    place.run()
    before = truth.stored(place.index)
    corpus.path(place.docs, 9).write_bytes(b"broken \xff bytes")
    result = place.run()
    assert result.counts.failed == 1
    assert truth.stored(place.index) == before
    corpus.path(place.docs, 9).write_text(corpus.text(9, seed=1))
    place.run()
    assert place.wrong() == ""
    assert place.open().failures() == []


def test_names_with_spaces_unicode_odd_bytes_and_255_bytes_are_documents_like_others(place: Location) -> None:
    names = [
        "with space.md",
        "query?and#fragment%20.md",
        "naïve-e\u0301.md",
        "naïve-\u00e9.md",
        "日本語.md",
        "UPPER.md",
        "upper.md",
        "n" * 252 + ".md",
    ]
    for number, name in enumerate(names):
        (place.docs / name).write_text(corpus.text(1000 + number))
    os.link(corpus.path(place.docs, 1), os.fsencode(place.docs) + b"/bytes-\xff\xfe.md")
    result = place.run()
    assert result.counts.written == 60 + len(names) + 1
    assert place.wrong() == "" or "bytes-" in str(result)
    assert place.run().state is None


def test_symlink_loops_end_and_linked_files_are_read(place: Location) -> None:
    (place.docs / "loop").symlink_to(place.docs, target_is_directory=True)
    (place.docs / "linked.md").symlink_to(corpus.path(place.docs, 2))
    result = place.run()
    assert result.counts.written == 61
    assert place.run().state is None


@pytest.mark.parametrize("rebuild", [False, True])
def test_documents_behind_a_link_whose_folder_is_away_stay(place: Location, tmp_path: Path, rebuild: bool) -> None:
    volume = tmp_path / "volume"
    corpus.write(volume, range(100, 105))
    (place.docs / "archive").symlink_to(volume)
    assert place.run().counts.written == 65
    volume.rename(tmp_path / "unmounted")
    corpus.path(place.docs, 3).write_text("other words")
    if rebuild:
        place.open().rebuild("Document")
        with pytest.raises(UserError, match=r"archive: a broken link, .* 5 documents"):
            place.run()
    else:
        result = place.run()
        assert (result.counts.written, result.counts.deleted) == (1, 0)
        assert any("archive: a broken link" in each for each in result.notes)
    assert place.open().status()[0].documents == 65
    (place.docs / "archive").unlink()
    place.run()
    assert place.open().status()[0].documents == 60


def test_a_file_removed_after_the_listing_is_no_failure_and_gone_after_the_next_run(place: Location) -> None:
    gone = corpus.path(place.docs, 11)

    class Remover(Silent):
        def begin(self, entity: str, total: int | None, unit: str) -> None:
            gone.unlink()

    result = place.run(progress=Remover())
    assert result.state is JobState.COMPLETED
    assert (result.counts.skipped, result.counts.failed) == (1, 0)
    assert place.wrong() == ""
    assert place.run().state is None


def test_a_document_skipped_as_too_large_has_not_failed(place: Location) -> None:
    corpus.path(place.docs, 11).write_text("# Long\n" + "words " * 10_000)
    place.declare(entity="limits: {max_document_bytes: 50000, on_oversize: skip}")
    assert place.run().state is JobState.COMPLETED
    (status,) = instep.load(place.root).status()
    assert (status.failures, status.skipped) == (0, 1)
    assert status.notes == ("1 document skipped as too large; see `instep failures`",)


def test_empty_files_and_an_empty_folder_are_fine(place: Location) -> None:
    (place.docs / "empty.md").write_bytes(b"")
    assert place.run().counts.failed == 0
    assert place.wrong() == ""
    assert place.run().state is None


def test_a_folder_without_documents_is_nothing_to_do(tmp_path: Path) -> None:
    place = Location(tmp_path / "project", tmp_path / "docs")
    place.docs.mkdir()
    place.declare()
    assert place.run().state is None


@pytest.mark.long  # Thousands more than elsewhere, and nothing else.
def test_ten_thousand_tiny_files(place: Location) -> None:
    for number in range(10_000):
        folder = place.docs / f"tiny{number % 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.md").write_text(f"tiny {number}\n")
    result = place.run()
    assert result.counts.written == 10_060
    assert place.wrong() == ""


@pytest.mark.slow
@pytest.mark.long  # Tests of the pipeline cut large documents, too.
def test_one_file_of_a_hundred_megabytes(place: Location) -> None:
    with (place.docs / "giant.md").open("w") as giant:
        for number in range(20_000):
            giant.write(corpus.text(number, paragraphs=12))
            if giant.tell() > 100_000_000:
                break
    result = place.run()
    assert result.counts.written == 61
    assert result.counts.bytes_read > 100_000_000
    stored = truth.stored(place.index)
    giant_id = hashlib.sha256((place.docs / "giant.md").as_uri().encode()).hexdigest()
    chunks = {text for (identity, text), _ in stored.items() if identity == f"doc_{giant_id}"}
    # A document this large is cut into pieces first, so chunks at the seams may differ from one big cut;
    # but no word of it may be lost.
    assert sum(map(len, chunks)) > 95_000_000
    assert place.wrong(keep=lambda path: path.name != "giant.md").count("missing") == 0
