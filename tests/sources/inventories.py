"""Inventories of S3 as AWS documents them, written by the tests: manifest, checksum, and data files in each format.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from tests.servers.s3 import S3Server

CSV, ORC, PARQUET = "CSV", "ORC", "Parquet"
_ENDS: Final = {CSV: "csv.gz", ORC: "orc", PARQUET: "parquet"}
_TIME: Final = pa.timestamp("ms", "UTC")

#: Fields in the order of AWS: as CSV names them, as the other formats do, and their types there.
_FIELDS: Final[dict[str, tuple[str, pa.DataType, str, str]]] = {
    "Bucket": ("bucket", pa.string(), "required binary {} (UTF8);", "string"),
    "Key": ("key", pa.string(), "required binary {} (UTF8);", "string"),
    "VersionId": ("version_id", pa.string(), "optional binary {} (UTF8);", "string"),
    "IsLatest": ("is_latest", pa.bool_(), "optional boolean {};", "boolean"),
    "IsDeleteMarker": ("is_delete_marker", pa.bool_(), "optional boolean {};", "boolean"),
    "Size": ("size", pa.int64(), "optional int64 {};", "bigint"),
    "LastModifiedDate": ("last_modified_date", _TIME, "optional int64 {} (TIMESTAMP_MILLIS);", "timestamp"),
    "ETag": ("e_tag", pa.string(), "optional binary {} (UTF8);", "string"),
    "StorageClass": ("storage_class", pa.string(), "optional binary {} (UTF8);", "string"),
}
VERSIONED: Final = tuple(_FIELDS)
CURRENT: Final = tuple(each for each in _FIELDS if each not in {"VersionId", "IsLatest", "IsDeleteMarker"})


@dataclass(frozen=True)
class Line:
    """One object, or one version of it, in an inventory."""

    key: str
    size: int | None
    etag: str | None
    modified: datetime
    version: str = ""
    latest: bool = True
    deleted: bool = False

    def values(self, bucket: str) -> dict[str, Any]:
        return {
            "Bucket": bucket,
            "Key": self.key,
            "VersionId": self.version,
            "IsLatest": self.latest,
            "IsDeleteMarker": self.deleted,
            "Size": self.size,
            "LastModifiedDate": self.modified,
            "ETag": self.etag,
            "StorageClass": "STANDARD",
        }


@dataclass(frozen=True)
class Inventories:
    """Where a configuration `daily` of a bucket has its inventories, in the same store."""

    server: S3Server
    bucket: str
    prefix: str

    @property
    def place(self) -> str:
        return f"{self.prefix}/{self.bucket}/daily"

    @property
    def url(self) -> str:
        return f"s3://{self.server.bucket}/{self.place}"

    def lines(self, below: str = "") -> list[Line]:
        """All objects as they are now."""
        pages = self.server.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=below)
        return [
            Line(each["Key"], each["Size"], each["ETag"].strip('"'), each["LastModified"])
            for page in pages
            for each in page.get("Contents", ())
        ]

    def deliver(
        self,
        lines: Sequence[Line],
        created: datetime,
        *,
        form: str = PARQUET,
        fields: Sequence[str] = CURRENT,
        files: int = 1,
        source: str | None = None,
        checksum: bool = True,
    ) -> str:
        """Write an inventory, and return the key of its folder; without its `checksum` S3 is still at it."""
        bucket = source or self.bucket
        written = []
        for number in range(files):
            key = f"{self.place}/data/{uuid.uuid4()}.{_ENDS[form]}"
            data = _data(lines[number::files], bucket, form, fields)
            self._put(key, data)
            written.append({"key": key, "size": len(data), "MD5checksum": _md5(data)})
        manifest = {
            "sourceBucket": bucket,
            "destinationBucket": f"arn:aws:s3:::{self.server.bucket}",
            "version": "2016-11-30",
            "creationTimestamp": str(int(created.timestamp() * 1000)),
            "fileFormat": form,
            "fileSchema": _schema(form, fields),
            "files": written,
        }
        folder = f"{self.place}/{created.astimezone(UTC):%Y-%m-%dT%H-%MZ}"
        content = json.dumps(manifest, indent=4).encode()
        self._put(f"{folder}/manifest.json", content)
        if checksum:
            self._put(f"{folder}/manifest.checksum", _md5(content).encode())
        self._put(f"{self.place}/hive/dt={created:%Y-%m-%d-%H-%M}/symlink.txt", b"s3://elsewhere")
        return folder

    def snapshot(self, created: datetime, below: str = "", **how: Any) -> str:
        """An inventory of the bucket as it is now."""
        return self.deliver(self.lines(below), created, **how)

    def _put(self, key: str, data: bytes) -> None:
        self.server.client().put_object(Bucket=self.server.bucket, Key=key, Body=data)


def older(line: Line, **changes: Any) -> Line:
    """A version that is not the newest one of its object."""
    return replace(line, latest=False, **changes)


def _schema(form: str, fields: Sequence[str]) -> str:
    if form == CSV:
        return ", ".join(fields)
    if form == ORC:
        return f"struct<{','.join(f'{_FIELDS[each][0]}:{_FIELDS[each][3]}' for each in fields)}>"
    return f"message s3.inventory {{ {' '.join(_FIELDS[each][2].format(_FIELDS[each][0]) for each in fields)} }}"


def _data(lines: Sequence[Line], bucket: str, form: str, fields: Sequence[str]) -> bytes:
    rows = [each.values(bucket) for each in lines]
    sink = io.BytesIO()
    if form == CSV:
        text = io.StringIO()
        writer = csv.writer(text, quoting=csv.QUOTE_ALL)
        writer.writerows([_text(name, row[name]) for name in fields] for row in rows)
        return gzip.compress(text.getvalue().encode())
    schema = pa.schema([pa.field(_FIELDS[each][0], _FIELDS[each][1]) for each in fields])
    columns = [pa.array([row[each] for row in rows], _FIELDS[each][1]) for each in fields]
    table = pa.Table.from_arrays(columns, schema=schema)
    if form == ORC:
        orc.write_table(table, sink)
    else:
        pq.write_table(table, sink)
    return sink.getvalue()


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "Key":
        return quote_plus(value, safe="/")
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.000Z"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
