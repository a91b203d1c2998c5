"""`inventory` of a source in S3: what may stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

import instep

URL = "s3://inventories/of/manuals/daily"


def load(folder: Path, path: str, inventory: str) -> None:
    (folder / "instep.yaml").write_text(
        "name: p\ntargets: {i: {type: lance, uri: i}}\nentities:\n  Page:\n    source:\n      type: files\n"
        f"      path: {path}\n      inventory: {inventory}\n"
    )
    instep.load(folder)


@pytest.mark.parametrize("path", ["s3://manuals", "s3://manuals/docs", "[s3://manuals/a, s3a://manuals/b]"])
@pytest.mark.parametrize("inventory", [URL, f"{URL}/", "s3://inventories/manuals/daily"])
def test_an_inventory_of_the_bucket_of_all_paths_is_taken(tmp_path: Path, path: str, inventory: str) -> None:
    load(tmp_path, path, inventory)


@pytest.mark.parametrize(
    ("path", "inventory", "why"),
    [
        ("docs", URL, "is for paths that begin with s3://"),
        ("s3://manuals/docs", "s3://inventories/daily", "must be s3://inventory-bucket/prefix/source-bucket/config-id"),
        ("s3://manuals/docs", "inventories/manuals/daily", "must be s3://inventory-bucket/prefix"),
        ("s3://others/docs", URL, "is of bucket manuals, and `path` is in others: they must be the same"),
        ("[s3://manuals/a, s3://others/b]", URL, "is of bucket manuals, and `path` is in manuals, others"),
    ],
)
def test_another_one_is_refused_with_its_line(tmp_path: Path, path: str, inventory: str, why: str) -> None:
    with pytest.raises(instep.InstepError) as error:
        load(tmp_path, path, inventory)
    assert why in str(error.value)
    assert "instep.yaml:8" in str(error.value)
