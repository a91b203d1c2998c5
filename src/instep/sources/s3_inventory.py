"""Inventories of S3: lists of all objects of a bucket, which S3 writes once a day or once a week into another one.

Their form: https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from instep.domain.texts import cleaned
from instep.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

#: Folders of inventories are named by the minute at which S3 began to make them.
_DATED: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\dZ")
#: What is read, as Parquet and ORC name it and as the manifests of CSV do; and what there has to be.
_COLUMNS: Final = {
    "key": "Key",
    "size": "Size",
    "e_tag": "ETag",
    "is_latest": "IsLatest",
    "is_delete_marker": "IsDeleteMarker",
}
_NEEDED: Final = ("key", "size", "e_tag")
_ROWS: Final = 65_536


class Damaged(Exception):
    """An inventory that cannot be read as a whole; the message says why."""


class Manifest(NamedTuple):
    """One inventory. `created` is the moment (ms) when S3 began to make it. `files` are paths and MD5 sums; `columns`
    are those of CSV files, which do not say it themselves.
    """

    created: int
    format: str
    files: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class S3Inventory:
    """The inventories that one configuration of a bucket makes: `url` is the folder of their dated manifests. `options`
    are those of the source.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def bucket(self) -> str:
        """The bucket whose objects it lists."""
        return self.url.rstrip("/").split("/")[-2]

    def newest(self) -> Manifest:
        """The newest one that is complete. Raises `Damaged`, and `UserError` if it is of no use for documents."""
        with _told(self.url):
            files, root = self._files()
            folders = (str(each["name"]).rstrip("/") for each in files.ls(root, detail=True))
            dated = sorted((each for each in folders if _DATED.fullmatch(each.rpartition("/")[2])), reverse=True)
            for folder in dated:
                try:
                    digest, content = (files.cat_file(f"{folder}/manifest.{end}") for end in ("checksum", "json"))
                except FileNotFoundError:
                    continue  # S3 is still at it.
                if _md5(content) != digest.decode().strip():
                    raise Damaged(f"{folder}/manifest.json is not what its manifest.checksum says")
                return self._manifest(json.loads(content))
            raise Damaged(f"there is no complete inventory in {self.url}")

    def objects(self, manifest: Manifest) -> Iterator[pa.Table]:
        """The objects that are there, in columns `key`, `size` and `e_tag`. Raises `Damaged` and `UserError`."""
        with _told(self.url):
            files, _ = self._files()
            for path, digest in manifest.files:
                with tempfile.TemporaryDirectory() as folder:
                    here = Path(folder, "data")
                    files.get_file(path, str(here))
                    with here.open("rb") as data:
                        if hashlib.file_digest(data, "md5").hexdigest() != digest:
                            raise Damaged(f"{path} is not what its manifest says")
                    for table in _READERS[manifest.format](here, manifest.columns):
                        yield _there(self._checked(table))

    def _files(self) -> tuple[Any, str]:
        import fsspec

        files, root = fsspec.core.url_to_fs(self.url.rstrip("/"), **self.options)
        files.invalidate_cache()
        return files, root

    def _manifest(self, said: Mapping[str, Any]) -> Manifest:
        if said["sourceBucket"] != self.bucket:
            hint = "Name the folder `…/SOURCE-BUCKET/CONFIG-ID` of its own inventory."
            raise UserError(f"the inventory is of bucket {said['sourceBucket']}", where=self.url, hint=hint)
        if (form := str(said["fileFormat"]).upper()) not in _READERS:
            raise UserError(f"the inventory is in {form}: it must be CSV, ORC or Parquet", where=self.url)
        there = str(said["destinationBucket"]).rpartition(":")[2]
        files = tuple((f"{there}/{each['key']}", each["MD5checksum"]) for each in said["files"])
        columns = tuple(each.strip() for each in str(said["fileSchema"]).split(",")) if form == "CSV" else ()
        return Manifest(int(said["creationTimestamp"]), form, files, columns)

    def _checked(self, table: pa.Table) -> pa.Table:
        lacking = [_COLUMNS[each] for each in _NEEDED if each not in table.column_names]
        if lacking:
            hint = "Add Size and ETag to the fields of its configuration, or leave out `inventory`."
            raise UserError(f"the inventory has no column {' and no '.join(lacking)}", where=self.url, hint=hint)
        return table


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Files of others: whatever goes wrong with them is `Damaged`, but for what a user can mend."""
    try:
        yield
    except (Damaged, UserError):
        raise
    except Exception as error:
        raise Damaged(f"{url} cannot be read: {cleaned(f'{type(error).__name__}: {error}')[:300]}") from error


def _there(table: pa.Table) -> pa.Table:
    """The objects that are there: no older versions, and none of which the newest is a mark that it is deleted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, there in (("is_latest", True), ("is_delete_marker", False)):
        if name in table.column_names:
            said: Any = table[name]
            table = table.filter(said.fill_null(there) if there else pc.invert(said.fill_null(there)))
    kinds: dict[str, pa.DataType] = {"key": pa.string(), "size": pa.int64(), "e_tag": pa.string()}
    found: Any = table.select([*kinds]).cast(pa.schema(kinds))
    columns = [found["key"], found["size"].fill_null(0), found["e_tag"].fill_null("")]
    return pa.Table.from_arrays(columns, names=[*kinds])


def _of_parquet(path: Path, _: tuple[str, ...]) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = [each for each in _COLUMNS if each in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS, columns=names):
            yield pa.Table.from_batches([batch])


def _of_orc(path: Path, _: tuple[str, ...]) -> Iterator[pa.Table]:
    import pyarrow as pa
    from pyarrow import orc

    file = orc.ORCFile(path)
    names = [each for each in _COLUMNS if each in file.schema.names]
    for stripe in range(file.nstripes):
        yield pa.Table.from_batches([file.read_stripe(stripe, names)])


def _of_csv(path: Path, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """Its keys are percent-encoded."""
    import pyarrow as pa
    from pyarrow import csv

    from instep.arrow.percent import decoded

    names = {theirs: ours for ours, theirs in _COLUMNS.items() if theirs in columns}
    kinds = {"Size": pa.int64(), "IsLatest": pa.bool_(), "IsDeleteMarker": pa.bool_()}
    data: Any
    with (
        pa.input_stream(path, compression="gzip") as data,
        csv.open_csv(
            data,
            read_options=csv.ReadOptions(column_names=list(columns)),
            convert_options=csv.ConvertOptions(
                include_columns=list(names),
                column_types={each: kinds.get(each, pa.string()) for each in names},
            ),
        ) as batches,
    ):
        for batch in batches:
            found = pa.Table.from_batches([batch]).rename_columns([*names.values()])
            if "key" in found.column_names:
                keys = pa.chunked_array([decoded(batch["Key"])])
                found = found.set_column(found.column_names.index("key"), "key", keys)
            yield found


_READERS: Final[Mapping[str, Callable[[Path, tuple[str, ...]], Iterator[pa.Table]]]] = {
    "PARQUET": _of_parquet,
    "ORC": _of_orc,
    "CSV": _of_csv,
}


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
