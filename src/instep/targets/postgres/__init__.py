"""PostgreSQL: a target for tables (`target`), and one for documents (`documents`).

A run that finds nothing to do asks no target: what is here is imported without the driver.
"""

from importlib.util import find_spec

from instep.errors import UserError

if find_spec("psycopg") is None:  # Found missing here, it can be said what to install.
    raise UserError("a PostgreSQL target needs psycopg", hint="pip install 'instep[postgres]'")
