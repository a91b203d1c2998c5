"""An inventory of S3 is a listing of the past: a run by it loses nothing, and undoes nothing that is newer."""

from __future__ import annotations

import itertools
import re
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from instep.container import Container
from instep.entities.documents import listings
from instep.entities.plan_request import Kind, PlanOptions
from instep.jobs.entity_result import EntityResult
from instep.jobs.run import _run_all
from instep.jobs.source_poller import SourcePoller
from instep.planning.plan import EntityPlan, plan_entity
from instep.planning.planner import Planner
from instep.project import Project
from instep.targets.lance import LanceTarget
from instep.telemetry.progress import Silent
from tests.servers.s3 import S3Server, running_s3
from tests.servers.sqs import running_sqs
from tests.sources.inventories import CURRENT, Inventories, Line
from tests.waiting import until

pytestmark = [pytest.mark.server, pytest.mark.proof]

START = datetime(2026, 11, 1, tzinfo=UTC)
_BUCKETS = itertools.count()


class LookingPlanner(Planner):
    """Plans the paths that a queue has told of, as `--watch` does between two listings."""

    told: frozenset[str] | None = None

    def plan(self, ref: Any, generation: str | None = None, **options: Any) -> EntityPlan:
        return super().plan(ref, generation, **{**options, "paths": self.told})


@dataclass
class Site:
    """A bucket with its inventories, and a project that indexes what is in `docs/` of it. `told` are keys of which a
    message is in the queue.
    """

    server: S3Server
    root: Path
    bucket: str = field(default_factory=lambda: f"corpus-{next(_BUCKETS)}")
    source: dict[str, Any] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    minutes: int = 0

    def __post_init__(self) -> None:
        self.client = self.server.client()
        self.client.create_bucket(Bucket=self.bucket)
        self.inventories = Inventories(self.server, self.bucket, "inventories")
        self.put("keep")

    def put(self, name: str, text: str = "text") -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"docs/{name}.md", Body=f"{name} {text}".encode())
        self.told.add(name)

    def delete(self, name: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=f"docs/{name}.md")
        self.told.add(name)

    def there(self) -> dict[str, str | None]:
        """What is in the bucket: versions by name."""
        return {_name(each.key): each.etag for each in self.lines()}

    def lines(self) -> list[Line]:
        return self.inventories.lines("docs/")

    def deliver(self, lines: list[Line], **how: Any) -> None:
        """An inventory that is newer than all before."""
        self.minutes += 1
        self.inventories.deliver(lines, START + timedelta(minutes=self.minutes), **how)

    @property
    def project(self) -> Project:
        source = {
            "type": "files",
            "path": f"s3://{self.bucket}/docs",
            "storage_options": self.server.options,
            "inventory": self.inventories.url,
            **self.source,
        }
        targets = {"index": {"type": "lance", "uri": "index"}}
        entities = {"Page": {"source": source, "target": "index"}}
        return Project.model_validate({"name": "p", "root": self.root, "targets": targets, "entities": entities})

    def run(self, *, paths: set[str] | None = None, **options: Any) -> EntityResult:
        container = Container(self.project)
        with closing(container), closing(container.ledger()) as ledger:
            planner = LookingPlanner(
                {each.ref: each for each in container.setups()},
                container.context(ledger, Silent()),
                PlanOptions(**options),
                {},
            )
            told = None if paths is None else frozenset(f"s3://{self.bucket}/docs/{each}.md" for each in paths)
            object.__setattr__(planner, "told", told)
            (result,) = _run_all(container.setups(), planner, 60.0, lambda _: None)
            return result

    def plan(self, **options: Any) -> EntityPlan:
        container = Container(self.project)
        with closing(container), closing(container.ledger()) as ledger:
            (setup,) = container.setups()
            return plan_entity(setup, ledger, PlanOptions(**options), "", choose=container.engines.choose)

    def indexed(self) -> dict[str, str]:
        """What is recorded as indexed: versions by name."""
        container = Container(self.project)
        with closing(container), closing(container.ledger()) as ledger:
            (setup,) = container.setups()
            checkpoint = ledger.checkpoints.get(setup.ref, "")
            if checkpoint is None:
                return {}
            return {_name(uri): each.version for uri, each in ledger.documents.entries(checkpoint.instance).items()}

    def failures(self) -> int:
        container = Container(self.project)
        with closing(container), closing(container.ledger()) as ledger:
            return len(ledger.failures.page(limit=10))


def _name(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(".md")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(running_s3(), tmp_path)


def test_a_build_reads_the_inventory_and_says_how_old_it_is(site: Site) -> None:
    site.put("new")
    site.deliver(site.lines())
    site.put("later")
    result = site.run()
    assert set(site.indexed()) == {"keep", "new"}
    (note,) = result.notes
    assert re.search(r"listed by the inventory of 2026-11-01 00:01 UTC, .+ old: what has changed since", note)
    site.run(full_listing=True)
    assert set(site.indexed()) == {"keep", "new", "later"}


def test_an_index_is_complete_up_to_the_inventory_and_no_further(site: Site) -> None:
    site.deliver(site.lines())
    site.run()
    created = (START + timedelta(minutes=site.minutes)).timestamp() * 1000
    checkpoint = site.plan().checkpoint
    assert checkpoint is not None
    assert checkpoint.watermark == created
    site.put("later")
    site.run(full_listing=True)
    after = site.plan().checkpoint
    assert after is not None
    assert after.watermark > created
    site.put("a")
    site.deliver(site.lines())
    site.run()
    again = site.plan().checkpoint
    assert again is not None
    assert again.watermark == after.watermark  # The listing was later than the inventory.


def test_what_was_written_after_the_inventory_is_not_deleted_by_it(site: Site) -> None:
    site.deliver(site.lines())
    site.run()
    site.put("later")
    site.run(paths={"later"})
    plan = site.plan()
    assert (plan.kind, plan.found.counts["deleted"]) == (Kind.NOTHING, 0)


def test_what_was_deleted_after_the_inventory_does_not_come_back(site: Site) -> None:
    site.put("gone")
    site.deliver(site.lines())
    site.run()
    site.delete("gone")
    site.run(paths={"gone"})
    assert site.plan().kind is Kind.NOTHING
    assert site.failures() == 0


def test_what_was_deleted_before_the_first_build_is_no_failure(site: Site) -> None:
    site.put("gone")
    site.deliver(site.lines())
    site.delete("gone")
    site.run()
    assert set(site.indexed()) == {"keep"}
    assert site.failures() == 0
    assert site.plan().kind is Kind.NOTHING


def test_an_older_version_does_not_replace_a_newer_one(site: Site) -> None:
    site.put("page", "first")
    site.deliver(site.lines())
    site.run()
    site.put("page", "second")
    site.run(paths={"page"})
    assert site.plan().kind is Kind.NOTHING
    assert site.indexed() == site.there()


def test_what_is_gone_from_bucket_and_inventory_is_deleted(site: Site) -> None:
    site.put("gone")
    site.deliver(site.lines())
    site.run()
    site.delete("gone")
    site.deliver(site.lines())
    site.run()
    assert set(site.indexed()) == {"keep"}


def test_a_rebuild_has_what_was_written_after_the_inventory(site: Site) -> None:
    site.deliver(site.lines())
    site.run()
    site.put("later")
    site.run(paths={"later"})
    site.run(full_refresh=True)
    assert set(site.indexed()) == {"keep", "later"}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("built", [True, False], ids=["rebuild", "first build"])
def test_a_build_that_is_interrupted_loses_nothing_and_deletes_nothing_that_is_there(
    site: Site, monkeypatch: pytest.MonkeyPatch, when: str, built: bool
) -> None:
    for name in ("changes", "goes"):
        site.put(name)
    site.deliver(site.lines())
    if built:
        site.run()
        site.put("came")
        site.run(paths={"came"})
    commit = LanceTarget.commit

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            commit(*args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LanceTarget, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            site.run(full_refresh=built)
    site.put("changes", "another text")
    site.put("later")
    site.delete("goes")
    assert site.plan().kind is Kind.RESUME
    site.run()
    there = site.there()
    assert set(site.indexed()) >= {"keep", "changes", *(["came"] if built else [])}
    site.deliver(site.lines())
    site.run()
    assert (site.indexed(), site.failures()) == (there, 0)


def test_deletes_by_an_inventory_stop_at_the_guard(site: Site) -> None:
    for number in range(120):
        site.put(f"n{number}")
    site.deliver(site.lines())
    site.run()
    for number in range(120):
        site.delete(f"n{number}")
    site.deliver(site.lines())
    plan = site.plan()
    assert plan.found.blocked is not None
    assert plan.found.blocked.why.startswith("120 of 121 documents are gone from the source")


def test_where_many_differ_the_bucket_is_listed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.deliver(site.lines())
    site.run()
    for name in ("a", "b", "c"):
        site.put(name)
    site.deliver(site.lines())
    site.put("later")
    assert site.plan().found.of_past
    assert site.plan().found.counts["new"] == 3
    monkeypatch.setattr(listings, "_FEW", 2)
    plan = site.plan()
    assert (plan.found.of_past, plan.found.counts["new"], plan.found.warnings) == (False, 4, [])


def test_who_waits_for_what_is_newer_gets_a_listing(site: Site) -> None:
    import instep

    site.deliver(site.lines())
    site.run()
    site.put("later")
    opened = instep.Instep(site.project)
    opened.want("Page", as_of=START)
    assert site.plan().found.of_past
    opened.want("Page", fresh_within=timedelta())
    plan = site.plan()
    assert (plan.found.of_past, plan.found.counts["new"]) == (False, 1)


@pytest.mark.parametrize("damage", ["nothing", "no checksum", "data gone"])
def test_without_a_whole_inventory_the_bucket_is_listed(site: Site, damage: str) -> None:
    if damage == "no checksum":
        site.deliver([], checksum=False)
    elif damage == "data gone":
        site.deliver(site.lines())
        files = site.server.files()
        for each in files.find(f"{site.server.bucket}/{site.inventories.place}/data"):
            files.rm_file(each)
    site.put("new")
    result = site.run()
    assert site.indexed() == site.there()
    (note,) = result.notes
    assert note.startswith("all objects were listed, because the inventory cannot be used: ")


def test_what_a_user_can_mend_is_an_error(site: Site) -> None:
    from instep.errors import UserError

    site.deliver(site.lines(), fields=[each for each in CURRENT if each != "ETag"])
    with pytest.raises(UserError, match="has no column ETag"):
        site.run()
    assert site.indexed() == {}


def test_a_message_is_kept_until_its_object_was_looked_at(site: Site) -> None:
    """A listing by an inventory finds no change, and has not seen what the message tells of."""
    sqs = running_sqs()
    url = sqs.queue(f"told-{site.bucket}", visibility=1)
    options = {"client_kwargs": {"region_name": "us-east-1"}, **site.server.options}
    site.source = {"events": {"type": "sqs", "url": url}, "storage_options": options}
    site.put("page", "first")
    site.deliver(site.lines())
    site.run()
    site.put("page", "second")
    container = Container(site.project)
    with closing(container), closing(container.ledger()) as ledger:
        setups = {each.ref: each for each in container.setups()}
        (ref,) = setups
        poller = SourcePoller(Planner(setups, container.context(ledger, Silent()), PlanOptions(), {}), every=3_600)
        try:
            sqs.tell(url, site.bucket, "docs/page.md")
            until(lambda: bool(poller._due() and poller._changed[ref]))
            plan = poller._plan(ref, "")
            assert plan is not None
            assert (plan.found.of_past, plan.pending) == (True, False)
            until(lambda: bool(poller._due()))
            plan = poller._plan(ref, "")
            assert plan is not None
            assert (plan.found.partial, plan.found.counts["changed"]) == (True, 1)
        finally:
            poller.close()


NAMES = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), st.sampled_from(["one", "two"])),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(st.just("begin")),
        st.tuples(st.just("deliver"), st.sets(st.sampled_from(NAMES))),
        st.tuples(st.just("events"), st.sets(st.sampled_from(NAMES), min_size=1)),
        st.tuples(st.just("run")),
        st.tuples(st.just("rebuild")),
    ),
    min_size=3,
    max_size=9,
)


@dataclass
class Story:
    """Steps in any order, and what must hold after each. S3 begins an inventory, and delivers it later; it may lack
    what has been written, and have what has been deleted, since the one before.
    """

    site: Site
    scanned: list[Line] = field(default_factory=list)
    before: list[Line] = field(default_factory=list)

    def put(self, name: str, text: str) -> None:
        self.site.put(name, text)

    def delete(self, name: str) -> None:
        self.site.delete(name)

    def begin(self) -> None:
        self.before, self.scanned = self.scanned, self.site.lines()

    def deliver(self, late: set[str]) -> None:
        """Of those that are `late` it has what the one before had."""
        news = [each for each in self.scanned if _name(each.key) not in late]
        olds = [each for each in self.before if _name(each.key) in late]
        self.site.deliver([*news, *olds])

    def events(self, names: set[str]) -> None:
        if told := names & self.site.told:
            self.site.run(paths=told)
            self.site.told -= told

    def run(self) -> None:
        self.site.run()

    def rebuild(self) -> None:
        self.site.run(full_refresh=True)

    def step(self, what: str, *how: Any) -> None:
        index, bucket = self.site.indexed(), self.site.there()
        getattr(self, what)(*how)
        if what in {"put", "delete", "begin", "deliver"}:
            return
        after = self.site.indexed()
        for name, version in index.items():
            if name in bucket:
                assert name in after, "a document is lost that the bucket has"
            if bucket.get(name) == version:
                assert after[name] == version, "a newer version is replaced by an older one"
        for name in after:
            assert name in bucket or name in index, "a document comes back that the bucket has not"
        assert self.site.failures() == 0


@given(steps=STEPS)
# A step is a run of a second or so: what fails is short enough as it is.
@settings(max_examples=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_in_whatever_order_nothing_is_lost_and_a_listing_makes_it_equal(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    site = Site(running_s3(), tmp_path_factory.mktemp("site"))
    story = Story(site)
    story.begin()
    story.begin()
    story.deliver(set())
    story.step("run")
    for each in steps:
        story.step(*each)
    story.events(set(site.told))
    story.step(
        "run",
    )
    site.run(full_listing=True)
    assert site.indexed() == site.there()
    site.deliver(site.lines())
    assert site.plan().kind is Kind.NOTHING
