"""Talking to ClickHouse, in this process (chdb) or on a server: what its source and its target share."""
