"""The machine, and a virtual environment like a user's: the wheel, with bytecode compiled at install."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "bench" / ".work"
#: Of the package, by engine.
EXTRAS: dict[str, tuple[str, ...]] = {"inline": (), "spark": ("spark",)}


def virtual_environment(*extras: str) -> Path:
    """The `bin` folder of one in bench/.work that has the project as it is now, and these of its extras."""
    venv, wheels = WORK / "-".join(("venv", *extras)), WORK / "wheel"
    stamp = venv / ".instep-sources"
    sources = _sources_digest()
    if stamp.exists() and stamp.read_text() == sources:
        return venv / "bin"
    uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    WORK.mkdir(exist_ok=True)
    shutil.rmtree(wheels, ignore_errors=True)
    _quietly(uv, "build", "--wheel", "--out-dir", str(wheels))
    if not venv.exists():
        _quietly(uv, "venv", "--python", sys.executable, str(venv))
    install = (uv, "pip", "install", "--python", str(venv / "bin" / "python"), "--compile-bytecode")
    (wheel,) = wheels.glob("*.whl")
    wanted = f"instep[{','.join(extras)}] @ {wheel.as_uri()}"
    _quietly(*install, "--constraint", "requirements.lock", "--reinstall-package", "instep", wanted)
    _check_once(venv / "bin" / "instep", *(["--spark"] if "spark" in extras else []))
    stamp.write_text(sources)
    return venv / "bin"


def _check_once(instep: Path, *options: str) -> None:
    """What the README's tour has a user do once: where Spark is, it starts in half the time from then on."""
    folder = WORK / "checked"
    folder.mkdir(exist_ok=True)
    (folder / "note.md").write_text("# Note\n")
    _quietly(str(instep), "init", "--force", str(folder))
    _quietly(str(instep), "check", "--project", str(folder), *options)


def describe_machine() -> dict[str, str]:
    versions = {name: importlib.metadata.version(name) for name in ("pyspark", "pylance", "pyarrow", "numpy")}
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "processor": _processor(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "java": _java(),
        **versions,
        "load at start": f"{os.getloadavg()[0]:.1f}",
    }


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    lines = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return next((line for line in lines if "version" in line), "unknown")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _sources_digest() -> str:
    digest = sha256()
    for path in [ROOT / "pyproject.toml", ROOT / "requirements.lock", *sorted((ROOT / "src").rglob("*"))]:
        if path.is_file() and path.suffix != ".pyc":
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _quietly(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
