"""ClickHouse may be set up to answer in part without an error. No such answer passes for all that there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from clickhouse_connect.driver.models import SettingDef

from instep.clickhouse.location import Location
from instep.clickhouse.session import JSON, WHOLE, demanded, in_part
from instep.domain.rows import DocumentColumns, RowColumns, Selection
from instep.errors import InstepError, UserError
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.clickhouse_rows import ClickHouseRows
from tests.servers import clickhouse
from tests.sources.tables.clickhouse_tables import ask, made

#: More than one block, of which ClickHouse reads at least one.
COUNT = 300_000
PROFILES = {
    "read": "max_rows_to_read = 1000, read_overflow_mode = 'break'",
    "result": "max_result_rows = 1000, result_overflow_mode = 'break'",
    "limit": "limit = 1",
}
COLUMNS = DocumentColumns(key=("id",), text="text")


def rows() -> pa.Table:
    return pa.table({"id": pa.array(range(COUNT)), "text": pa.array(["x"] * COUNT)})


@pytest.fixture(params=PROFILES)
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("clickhouse")
    with clickhouse.running(folder, profile=PROFILES[request.param]) as address:
        yield address.replace("://", "://default:@")


def test_a_profile_under_which_rows_would_be_missing_is_overruled_or_an_error(uri: str) -> None:
    """Where it bounds what may be read, that stays: it is said, and nothing less comes."""
    source = made(uri, rows(), order="id")
    asking: list[Callable[[], int]] = [
        lambda: sum(each.num_rows for each in ClickHouseRows(source).listed(COLUMNS)),
        lambda: source.histogram(_no_spark, RowColumns(("id",)), Selection(), ("id",), bins=10).rows,
    ]
    for asked in asking:
        found = None
        with suppress(InstepError):
            found = asked()
        assert found in (None, COUNT)


def test_a_setting_that_the_user_may_not_change_has_to_be_right() -> None:
    def known(readonly: int, **values: str) -> dict[str, SettingDef]:
        right = {name: str(value) for name, value in {**WHOLE, **JSON}.items()}
        return {name: SettingDef(name, value, readonly) for name, value in {**right, **values}.items()}

    assert demanded(known(0, read_overflow_mode="break"), "here") == {**WHOLE, **JSON}
    assert demanded(known(1), "here") == {}
    assert demanded({}, "here") == {**WHOLE, **JSON}
    for name, value in (("read_overflow_mode", "break"), ("skip_unavailable_shards", "1"), ("limit", "10")):
        with pytest.raises(UserError, match=f"{name} = {value}, and forbids to change it"):
            demanded(known(1, **{name: value}), "here")


@pytest.mark.parametrize(
    "setting", ["max_rows_to_read = 1000, read_overflow_mode = 'break'", "skip_unavailable_shards = 1"]
)
def test_a_setting_in_a_query_or_a_view_is_refused(tmp_path_factory: pytest.TempPathFactory, setting: str) -> None:
    """It overrules what is sent."""
    folder = str(tmp_path_factory.mktemp("chdb"))
    source = made(folder, rows().slice(0, 10))
    ask(folder, f"CREATE VIEW default.part AS SELECT * FROM {source.table} SETTINGS {setting}")
    queried = ClickHouseTable(folder, source.table, sql=f"SELECT * FROM source SETTINGS {setting}")
    for table, where in ((queried, "`sql`"), (ClickHouseTable(folder, "default.part"), "default.part")):
        for look in (
            lambda table=table: table.columns(_no_spark),
            lambda table=table: list(ClickHouseRows(table).listed(COLUMNS)),
        ):
            with pytest.raises(UserError, match=f"{where} has the setting .*would return only a part of the rows"):
                look()


def test_settings_are_recognised_however_they_are_written() -> None:
    for text in ("SETTINGS Read_Overflow_Mode='break'", "group_by_overflow_mode = any", "skip_unavailable_shards=true"):
        assert in_part(text)
    for text in ("read_overflow_mode = 'throw'", "skip_unavailable_shards = 0", "SELECT read_overflow_mode FROM t"):
        assert in_part(text) is None


@pytest.mark.parametrize("setting", ["skip_unavailable_shards=1", "read_overflow_mode=break"])
def test_settings_in_an_address_are_refused(setting: str) -> None:
    with pytest.raises(UserError, match="not understood"), Location.of(f"http://host:8123/db?{setting}").session():
        pass


def _no_spark() -> None:
    raise AssertionError("nothing here needs Spark")
