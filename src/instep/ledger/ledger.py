"""The ledger: a coordination database, store by store."""

from __future__ import annotations

from sqlalchemy import Engine

from instep.domain.clock import TIMING, Timing
from instep.domain.refs import Naming
from instep.ledger import event_log, figures, snapshots, sweep
from instep.ledger.bases import BaseFiles
from instep.ledger.checkpoints import Checkpoints
from instep.ledger.dialects.dialect import SqlDialect
from instep.ledger.documents import Documents
from instep.ledger.embedding_batches import EmbeddingBatches
from instep.ledger.events import Events
from instep.ledger.failures import Failures
from instep.ledger.figures import Figures
from instep.ledger.instances import Instances
from instep.ledger.job_log import JobLog
from instep.ledger.jobs import Jobs
from instep.ledger.key_leases import KeyLeases
from instep.ledger.leases import Leases
from instep.ledger.losses import Losses
from instep.ledger.open_parts import OpenParts
from instep.ledger.paces import Paces
from instep.ledger.partitions import Partitions
from instep.ledger.parts import Parts
from instep.ledger.plans import Plans
from instep.ledger.recent_entries import RecentEntries
from instep.ledger.retention import Retention
from instep.ledger.seen import SeenRows
from instep.ledger.slices import Slices
from instep.ledger.spending import Spending
from instep.ledger.state_files import StateFiles
from instep.ledger.status_keys import StatusKeys
from instep.ledger.sweep import Swept
from instep.ledger.transaction import Database, Transaction
from instep.ledger.wants import Wants
from instep.ledger.workers import Workers


class Ledger:
    """The ledger's stores over one database. May be shared by threads. `tests/contracts/ledger` says how it behaves.

    Every write about a slice shows its fence, every write about a partition the epoch of its lease; a write whose fence
    was overtaken raises `errors.Fenced` and changes nothing. All times are milliseconds since 1970-01-01 UTC by the
    ledger's own clock (rule 12). How long things may take is the `timing`.

    Every method, of the ledger and of its stores, is one transaction. `errors.Transient` means that it had no effect,
    `errors.Unknown` that the connection broke while it was being committed: whether it had one is to be looked up, or
    the call repeated where it says that it may be.
    """

    #: False of the empty one that stands in for a ledger that is not there yet.
    exists: bool = True

    def __init__(
        self,
        engine: Engine,
        dialect: SqlDialect,
        timing: Timing = TIMING,
        files: StateFiles | None = None,
    ) -> None:
        self.database = database = Database(engine, dialect, timing, self._committed)
        self.workers = Workers(database)
        self.jobs = Jobs(database)
        self.job_log = JobLog(database)
        self.leases = Leases(database)
        self.plans = Plans(database, files)
        self.parts = Parts(database, self.plans)
        self.open_parts = OpenParts(database)
        self.slices = Slices(database, self.plans)
        self._recent = RecentEntries()
        self.documents = Documents(database, BaseFiles(files) if files else None, self._recent)
        self.failures = Failures(database)
        self.losses = Losses(database)
        self.checkpoints = Checkpoints(database)
        self.seen = SeenRows(database)
        self.partitions = Partitions(database)
        self.instances = Instances(database)
        self.wants = Wants(database)
        self.events = Events(database)
        self.key_leases = KeyLeases(database)
        self.paces = Paces(database)
        self.spending = Spending(database)
        self.embedding_batches = EmbeddingBatches(database)
        self.status_keys = StatusKeys(database)
        self.retention = Retention(database)

    def close(self) -> None:
        self.database.close()

    def _committed(self, database: Database, tx: Transaction) -> None:
        for each in tx.written:
            self._recent.note(each)
        snapshots.follow(database, tx)

    def now(self) -> int:
        """The ledger's clock."""
        return self.database.read(Transaction.now)

    def naming(self) -> Naming:
        """The ledger's id, which is made with it and never changes, and its naming of instances."""
        return self.database.read(lambda tx: event_log.head(tx.connection).naming)

    def present(self) -> int:
        """The ledger's clock, but never before the last event in its log: the clock may have been set back. What
        is wanted "as of now" is measured by this; what lasts or is to be waited for, by the clock.
        """
        return self.database.read(event_log.present)

    def figures(self) -> Figures:
        """Count everything. The cost depends on slices in open jobs, leases and failures, not on history."""
        return self.database.read(figures.read)

    def sweep(self) -> Swept:
        """Recovery, by any worker, at its start and every two minutes. In this order:

        * Workers without a heartbeat for `stale` (`heartbeat_at + stale <= now`) are evicted.
        * Slices PROCESSING under a worker that is not registered have ended badly.
        * Jobs STOPPING with nothing in work become STOPPED; those that began to stop `grace` ago do so
          whatever is in work: these slices go back to PENDING without a spent attempt.
        * Jobs INITIALIZING in which no worker takes part are FAILED.

        Ended jobs free their leases, and have no workers. Finished slices are left alone.
        """
        return self.database.write(sweep.sweep)
