"""Operations on a pending queue: create, backfill, verify, read, status."""
