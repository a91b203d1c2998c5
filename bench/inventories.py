"""A bucket listed by its inventory, and by asking for all objects: `python -m bench.inventories`.

The server is the one of the tests, on this machine: a request costs it a fraction of what it costs over a network. Both
listings are those of a source of files, with `include` and `exclude` as a project has them by default. Of more objects
than the server holds, the inventory alone is read. Memory is the highest resident size above that before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.servers.s3 import S3Server, running_s3
from tests.sources.inventories import CSV, ORC, PARQUET, Inventories, Line

from bench import report
from bench.changes import Peak
from instep.project.sources import DEFAULT_EXCLUDE, DEFAULT_INCLUDE
from instep.sources.files import FilesSource
from instep.sources.s3_inventory import S3Inventory

OBJECTS, LINES, FILES = 1_000, 500_000, 8
_BUCKET = "bench-inventories"
_CREATED = datetime(2026, 11, 27, 1, 0, tzinfo=UTC)


def filled(server: S3Server, objects: int) -> None:
    client = server.client()
    client.create_bucket(Bucket=_BUCKET)

    def put(number: int) -> None:
        client.put_object(Bucket=_BUCKET, Key=_key(number), Body=b"x")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, range(objects)))


def _key(number: int) -> str:
    return f"docs/folder {number // 1_000:05d}/document-{number:08d}.md"


def measured(what: str, listing: Callable[[], Any], expected: int) -> list[str]:
    peak, began = Peak(), time.perf_counter()
    peak.start()
    found = len(listing())
    seconds, memory = time.perf_counter() - began, peak.stop()
    assert found == expected, f"{found:,} of {expected:,}"
    return [what, f"{found:,}", f"{seconds:.2f} s", f"{memory / 1e6:,.0f} MB"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--lines", type=int, default=LINES)
    given = parser.parse_args()
    server = running_s3()
    filled(server, given.objects)
    inventories = Inventories(server, _BUCKET, "inventories")
    inventory = S3Inventory(inventories.url, server.options)
    source = FilesSource(
        (f"s3://{_BUCKET}/docs",), DEFAULT_INCLUDE, DEFAULT_EXCLUDE, server.options, inventory=inventory
    )
    lines = [Line(_key(each), 1_000, f"{each:032x}", _CREATED) for each in range(given.lines)]
    minutes, rows = 0, []
    for form in (PARQUET, ORC, CSV):
        for some in (inventories.lines(), lines):
            minutes += 1
            inventories.deliver(some, _CREATED + timedelta(minutes=minutes), form=form, files=FILES)
            read = measured(f"inventory, {form}", lambda: source.listed_before(inventory.newest()).documents, len(some))
            rows.append(read)
    rows.append(measured("objects, asked for", lambda: source.list().documents, given.objects))
    report.show("A bucket listed", ["by", "objects", "time", "memory"], rows)


if __name__ == "__main__":
    main()
