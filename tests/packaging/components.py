"""The list of components (CycloneDX) that goes with a release, compared with the wheel."""

from __future__ import annotations

import json
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name


def without(components: Path, wheel: Path) -> set[NormalizedName]:
    """The requirements of a wheel, extras included, that a list of components (CycloneDX) does not have."""
    listed = json.loads(components.read_text(encoding="utf-8"))
    if listed.get("bomFormat") != "CycloneDX":
        raise SystemExit(f"{components.name} is no list of CycloneDX: {listed.get('bomFormat')!r}")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        asked = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    itself = canonicalize_name(wheel.name.partition("-")[0])
    named = {canonicalize_name(Requirement(each).name) for each in asked} - {itself}
    return named - {canonicalize_name(each["name"]) for each in listed["components"]}
