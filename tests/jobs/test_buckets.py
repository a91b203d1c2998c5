"""Buckets: what they hold, and how many there are."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from instep.cli import main
from instep.cli.buckets import bar
from instep.container import Container
from instep.domain.buckets import BucketLoad, skewed
from instep.domain.refs import PartitionRef
from instep.errors import UserError
from instep.jobs.slice_claims import SliceClaims
from instep.ledger.checkpoints import Checkpoint
from instep.pipeline.documents.embed.hashing import HashingEmbedder

from .projects import Home, home
from .tampering import Tamperer


def declare(place: Home, buckets: int) -> None:
    file = place.root / "instep.yaml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("    buckets:")]
    file.write_text("\n".join([*lines, f"    buckets: {buckets}"]) + "\n")


def checkpoint(place: Home) -> Checkpoint:
    container = Container(place.open().project)
    with closing(container), closing(container.ledger(read_only=True)) as ledger:
        found = ledger.checkpoints.get(PartitionRef("Document"))
    assert found is not None
    return found


def interrupted(monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SliceClaims, "complete", die)
        assert main([*command, "--quiet"]) == 130


def test_another_number_of_buckets_is_refused_and_rebalanced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HashingEmbedder, "cached", True)
    place = home(tmp_path)
    place.run()
    before, rows = checkpoint(place), sorted(map(str, Tamperer(place).rows()))
    declare(place, 4)
    with pytest.raises(UserError, match="routed over 16 buckets, and the project now says 4") as refused:
        place.run()
    assert "instep rebalance Document --buckets 4" in (refused.value.hint or "")
    (result,) = place.open().rebalance("Document", 4)
    after = checkpoint(place)
    assert (result.promoted, after.buckets) == (True, 4)
    assert after.physical != before.physical
    assert result.counts.embedded == 0  # The cache has them.
    assert sorted(map(str, Tamperer(place).rows())) == rows
    assert {each.bucket for each in place.open().buckets()[0].buckets} == {0, 1, 2, 3}
    assert place.run().state is None
    (again,) = place.open().rebalance("Document", 4)
    assert again.state is None


def test_a_job_in_work_keeps_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path)
    project = ["--project", str(place.root)]
    place.run()
    interrupted(monkeypatch, "rebalance", "Document", "--buckets", "8", *project)
    assert checkpoint(place).buckets == 16
    with pytest.raises(UserError, match=r"job .* is routed over 8 buckets, and the project now says 16"):
        place.run()
    (result,) = place.open().rebalance("Document", 8)
    assert str(result.plan.kind) == "resume"
    assert checkpoint(place).buckets == 8
    with pytest.raises(UserError, match="routed over 8 buckets, and the project now says 16"):
        place.run()


def test_a_first_build_keeps_its_number_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path)
    with pytest.raises(UserError, match="nothing is built"):
        place.open().rebalance("Document", 4)
    interrupted(monkeypatch, "run", "--project", str(place.root))
    declare(place, 4)
    with pytest.raises(UserError, match="instep rebalance Document --buckets 4"):
        place.run()
    (result,) = place.open().rebalance("Document", 4)
    assert (result.promoted, checkpoint(place).buckets) == (True, 4)


def test_buckets_add_up_to_the_indexed_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = home(tmp_path)
    place.run()
    (status,) = place.open().status()
    (view,) = place.open().buckets(["Document"])
    assert [each.bucket for each in view.buckets] == list(range(16))
    sums = [sum(getattr(each, name) for each in view.buckets) for name in ("documents", "rows", "bytes")]
    assert sums == [status.documents, status.rows, status.bytes]
    assert all(each.latency is not None and each.pending == 0 for each in view.buckets if each.documents)
    assert view.warnings == ()
    capsys.readouterr()
    assert main(["buckets", "--json", "--project", str(place.root)]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["buckets"][3] == view.buckets[3].model_dump()
    assert main(["buckets", "--project", str(place.root)]) == 0
    assert "█" in capsys.readouterr().out


def test_a_first_build_in_work_has_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path)
    with pytest.raises(UserError, match="nothing is built"):
        place.open().buckets()
    interrupted(monkeypatch, "run", "--project", str(place.root))
    (view,) = place.open().buckets()
    assert sum(each.pending for each in view.buckets) == 10
    assert sum(each.documents for each in view.buckets) == 0


def test_a_bucket_is_skewed_when_it_holds_far_more_than_the_mean_and_enough_to_matter() -> None:
    others = [BucketLoad(number, rows=1_000) for number in range(15)]
    assert skewed([*others, BucketLoad(15, rows=3_461)], 16) == []
    assert skewed([*others, BucketLoad(15, rows=3_462)], 16) == [BucketLoad(15, rows=3_462)]
    assert skewed([BucketLoad(0, rows=1_000)], 16) == []
    assert skewed([BucketLoad(0, rows=1_001)], 16) == [BucketLoad(0, rows=1_001)]


@pytest.mark.parametrize(
    ("value", "shown"), [(0, ""), (1, "▏"), (500, "█" * 10), (512, "█" * 10 + "▎"), (1000, "█" * 20)]
)
def test_bars(value: int, shown: str) -> None:
    assert bar(value, 1000) == shown.ljust(20)
