"""Databases that hold the ledger: SQLite, PostgreSQL, MariaDB and MySQL."""
