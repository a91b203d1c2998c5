"""PostgreSQL: a target for tables."""

from instep.errors import UserError

try:
    import psycopg as _  # noqa: F401 - found missing here, it can be said what to install
except ImportError:
    raise UserError("a PostgreSQL target needs psycopg", hint="pip install 'instep[postgres]'") from None

from instep.targets.postgres.target import PostgresTarget

__all__ = ["PostgresTarget"]
