"""Description of this package for Airflow's list of providers."""

from __future__ import annotations

from typing import Any, Final

_INTEGRATION: Final = "Instep"


def provider_info() -> dict[str, Any]:
    """The answer to `airflow providers get instep-airflow`."""
    return {
        "package-name": "instep-airflow",
        "name": _INTEGRATION,
        "description": "Keeps search, vector and graph indexes in step with their sources.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://github.com/instep-dev/instep/tree/main/docs/orchestrators.md",
                "tags": ["software"],
            }
        ],
        "operators": [{"integration-name": _INTEGRATION, "python-modules": ["instep_airflow.operators"]}],
        "sensors": [{"integration-name": _INTEGRATION, "python-modules": ["instep_airflow.sensors"]}],
        "triggers": [{"integration-name": _INTEGRATION, "python-modules": ["instep_airflow.triggers"]}],
    }
