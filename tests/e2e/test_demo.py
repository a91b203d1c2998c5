"""The first thing that a new user sees: `make demo`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def demo(**env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEMO)]
    return subprocess.run(
        command, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_builds_on_spark_and_needs_none_for_an_edited_file() -> None:
    done = demo()
    assert done.returncode == 0, done.stdout
    first, _, second = done.stdout.partition("$ instep run\n")
    for entity in ("Document", "Package", "Requirement"):
        assert f"{entity}: runs on Spark" in first
    assert first.count("(Spark: 1 stage, ") == 3
    assert "Document: ran inline, without a JVM\n" in second
    assert "Spark: " not in second.partition("$ instep search")[0]
    assert "found by words and meaning" in second, "with the model that is proposed to all"
    assert "A neap tide comes with the half moon." in second.partition("$ instep search")[2]
    assert ", instep, " in second.partition("$ instep search")[2], "needs numpy, says the graph"


def test_without_java_the_demo_says_in_a_sentence_what_is_missing(tmp_path: Path) -> None:
    done = demo(PATH=str(tmp_path), JAVA_HOME="")
    assert done.returncode == 1
    assert done.stdout == (
        "Spark needs Java 17 or newer, and no Java was found: install one (for example `apt install "
        "openjdk-17-jre-headless`) or set JAVA_HOME.\n"
    )
