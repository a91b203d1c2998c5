"""Plug-in of pytest: failed assertions in the contract suites show their values, as those in tests do."""

import pytest

pytest.register_assert_rewrite(
    *(
        f"instep.testing.{name}"
        for name in (
            *("ownership", "table_merging", "table_rows", "table_scopes", "table_serving", "table_target"),
            *("table_writers", "target", "target_columns", "target_filters", "target_rows", "target_searching"),
            *("target_serving", "target_writers", "source", "embedder"),
        )
    )
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark of long tests known, which nobody else declares."""
    config.addinivalue_line(
        "markers", "proof: a test of a contract suite that takes long (-m 'not proof' leaves it out)"
    )
