"""A list of components is compared with what a wheel asks for; `make dist` does so with those of a release."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.packaging.components import without

METADATA = """\
Metadata-Version: 2.4
Name: instep
Version: 1.0.0
Requires-Dist: pyarrow>=23
Requires-Dist: OpenSearch-Py>=3.2; extra == 'opensearch'
Requires-Dist: instep[serve]; extra == 'mcp'
"""


def test_a_list_of_components_has_to_name_all_that_the_wheel_asks_for(tmp_path: Path) -> None:
    wheel = tmp_path / "instep-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("instep-1.0.0.dist-info/METADATA", METADATA)
    listed = tmp_path / "instep.cdx.json"
    listed.write_text('{"bomFormat": "CycloneDX", "components": []}')
    assert without(listed, wheel) == {"pyarrow", "opensearch-py"}
    listed.write_text('{"bomFormat": "CycloneDX", "components": [{"name": "opensearch_py"}, {"name": "numpy"}]}')
    assert without(listed, wheel) == {"pyarrow"}
    listed.write_text('{"bomFormat": "SPDX"}')
    with pytest.raises(SystemExit, match="no list of CycloneDX: 'SPDX'"):
        without(listed, wheel)
