"""The main job on real input: index the documentation that came with the installed Python packages.

Run it with `make demo`. It writes a project into the folder `demo/`, indexes the READMEs (which
distributions carry in their METADATA), guides and examples found in this environment together with
this repository's `docs/`, and asks the index three questions.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DEMO = REPOSITORY / "demo"
INSTEP = Path(sys.executable).with_name("instep")

PROJECT = """\
# Written by examples/demo.py: everything Instep needs to know.
name: demo
targets:
  index: {{type: lance, uri: .instep/index}}
entities:
  Document:
    source:
      type: files
      path:
        - {packages}
        - {docs}
      include:
        - "*.dist-info/METADATA"      # the README of every distribution
        - "**/*.md"
        - "**/*.rst"
        - "**/*.html"
        - "**/*.txt"
        - pyspark/examples/**/*.py
      exclude:
        - "*.dist-info/*.txt"         # lists of names, no documentation
        - pyspark/data/**
    chunk: {{size: 800}}
    embed: {{type: hashing, dimensions: 384}}
"""

QUESTIONS = (
    ("text", "how to retry failed requests"),
    ("vector", "validate data with type hints"),
    ("hybrid", "lease and fence of a slice"),
)


def main() -> int:
    if shutil.which("java") is None:
        print("Instep runs its data pipeline on Spark, which needs Java 17 or newer, and no `java` was found on PATH.")
        return 1
    DEMO.mkdir(exist_ok=True)
    packages = Path(sysconfig.get_path("purelib"))
    (DEMO / "instep.yaml").write_text(PROJECT.format(packages=packages, docs=REPOSITORY / "docs"), encoding="utf-8")
    print(f"A project in {DEMO.relative_to(Path.cwd()) if DEMO.is_relative_to(Path.cwd()) else DEMO}/instep.yaml\n")
    if code := instep("run"):
        return code
    for mode, question in QUESTIONS:
        if code := instep("search", question, "--mode", mode, "--limit", "2"):
            return code
    instep("status")
    print(
        "Next: cd demo, then\n"
        "  ../.venv/bin/instep run                        # again: nothing to do, and no JVM started\n"
        "  ../.venv/bin/instep plan --full-refresh        # what a rebuild would do; writes nothing\n"
        "  ../.venv/bin/instep run --full-refresh --engine spark\n"
        '  ../.venv/bin/instep search "your question"\n'
        "  ../.venv/bin/instep init ~/notes               # a project of your own"
    )
    return 0


def instep(*arguments: str) -> int:
    shown = " ".join(f'"{each}"' if " " in each else each for each in arguments)
    print(f"\033[1m$ instep {shown}\033[0m" if sys.stdout.isatty() else f"$ instep {shown}", flush=True)
    code = subprocess.run([INSTEP, *arguments], cwd=DEMO, check=False).returncode
    print(flush=True)
    # 3: done, and some documents could not be indexed (see `instep failures`); the demo goes on.
    return 0 if code == 3 else code


if __name__ == "__main__":
    sys.exit(main())
