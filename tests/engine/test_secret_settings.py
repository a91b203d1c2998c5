"""Settings of Spark that may be secrets are on no command line, and Spark itself shows none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

KEYS = (
    "spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.executorEnv.OPENAI_API_KEY",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.acme.credential",
)
SCRIPT = f"""
import psutil
from instep.pipeline.engine.launch import new_session
from instep.pipeline.engine.settings import SparkSettings
keys = {KEYS!r}
session = new_session(SparkSettings("local[1]", config={{key: "hid" + f"den-{{n}}" for n, key in enumerate(keys)}}))
lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
assert any("SparkSubmit" in line or "pyspark-shell" in line for line in lines), lines
assert not [line for line in lines if "hid" "den-" in line]
conf = session.sparkContext.getConf()
assert [conf.get(key) for key in keys] == ["hid" + f"den-{{n}}" for n, key in enumerate(keys)]
import re
redacted = re.compile(conf.get("spark.redaction.regex").replace("(?i)", ""), re.IGNORECASE)
assert all(redacted.search(key) for key in keys)
print("well")
"""


def test_no_command_line_has_a_setting_that_may_be_secret() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "well", done.stderr
