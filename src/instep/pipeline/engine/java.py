"""Find the Java that Spark would use, and check its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_NEEDED = 17
#: How long it may take to say its version.
VERSION_SECONDS = 10.0


def java_problem() -> str | None:
    """Find out whether there is a Java that Spark can use: None, or one sentence about the problem."""
    java = find_java()
    mend = f"install one (for example `apt install openjdk-{JAVA_NEEDED}-jre-headless`) or set JAVA_HOME."
    if java is None:
        return f"Spark needs Java {JAVA_NEEDED} or newer, and no Java was found: {mend}"
    version = java_version(java)
    if version is None:
        return f"Spark needs Java {JAVA_NEEDED} or newer, and {java} does not say its version: {mend}"
    if version < JAVA_NEEDED:
        return f"Spark needs Java {JAVA_NEEDED} or newer, and {java} is Java {version}: {mend}"
    return None


def find_java() -> Path | None:
    """The `java` that Spark's own scripts would run: JAVA_HOME's, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return found if (found := Path(home, "bin", "java")).is_file() else None
    on_path = shutil.which("java")
    return Path(on_path) if on_path else None


def java_version(java: Path) -> int | None:
    """The feature version (17, 21, …); read from the `release` file beside it, else asked of Java itself."""
    release = java.resolve().parent.parent / "release"
    text = ""
    if release.is_file():
        found = re.search(r'^JAVA_VERSION="([^"]+)"', release.read_text(errors="replace"), re.MULTILINE)
        text = found[1] if found else ""
    if not text:
        try:
            said = subprocess.run(  # noqa: S603 -- the user's own Java
                [str(java), "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
        text = found[1] if found else ""
    numbers = re.match(r"(?:1\.)?(\d+)", text)
    return int(numbers[1]) if numbers else None
