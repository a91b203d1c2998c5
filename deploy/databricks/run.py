"""The task of the job: `instep` with the task's parameters, in the Spark session that Databricks has started."""

import sys

from instep.cli import main

# A code that is returned is not looked at, and in some runtimes SystemExit(0) counts as a failure.
if code := main(sys.argv[1:]):
    raise SystemExit(code)
