"""Tables as sources: whatever Spark reads, and ClickHouse."""
