"""ClickHouse, in this process (chdb) or on a server. A target for tables."""

from instep.targets.clickhouse.target import ClickHouseTarget

__all__ = ["ClickHouseTarget"]
