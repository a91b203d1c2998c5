"""Pending queues in ClickHouse: on a server, or in this process (chdb).

`ClickHousePending(uri, spec)` with `from instep.pending.clickhouse.store import ClickHousePending`: `uri` is what
`instep.clickhouse.place.Place.of` takes (a folder or `file://…` for chdb, `http(s)://user:password@host:8123/database`
for a server), without a scheme of the declaration (`chdb://`, `clickhouse://`) in front. Nothing is opened before the
first call, and a folder of chdb is given back between calls.
"""
