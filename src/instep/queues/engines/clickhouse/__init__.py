"""Pending queues in ClickHouse: on a server, or in this process (chdb).

`ClickHousePending(uri, spec)` with `from instep.queues.engines.clickhouse.store import ClickHousePending`: `uri` is
what `instep.clickhouse.location.Location.of` takes (a folder or `file://…` for chdb,
`http(s)://user:password@host:8123/database` for a server), without a scheme of the declaration (`chdb://`,
`clickhouse://`) in front. Nothing is opened before the first call, and a folder of chdb is given back between calls.

Three tables keep a queue, and materialized views keep them (`layout`).

*The truth* has a row for each key that the source or a cover ever named: whether the source was seen, and for each
cover the register of its latest event. It merges by maximum alone, so the order of arrival does not matter.

*The touched keys* are those of which any cover ever had an event, a bit each, sixty-four to a row. Where keys lie
closely together, they are so few rows that a read confirms a hundred keys by them at the cost of one: a key that is
pending was mostly never touched. The truth is asked of those that were.

*The offers* have the same registers for the few keys that may be pending, in the order of reading, and a register of
their own: the version that offered the key, even, or one more once it was withdrawn. They are fed from the truth's
inserts, so that an event has one version in both. Their rows may be dropped once they are spent (`offers`): a key
that is offered although it is covered is found out on reading, and its offer gets the cover's own register, which is
true whenever it arrives. No version that a reader made up stands against an event that is still on its way.
"""
