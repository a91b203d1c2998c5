"""Many who publish, register and work at once."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from instep.bus.bus import Bus
from instep.domain.refs import PartitionRef
from tests.contracts.bus.fixtures import PATIENCE, Fixtures, ask, consumer

PATHS = ("1/", "1/2/", "3/")
LAST = 8


class _Work:
    """What was in work, and what was done, as the workers saw it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_work: set[PartitionRef] = set()
        self.doubled: list[PartitionRef] = []
        self.done: dict[PartitionRef, list[int]] = defaultdict(list)
        self.deadline = time.monotonic() + PATIENCE

    def begin(self, ref: PartitionRef) -> None:
        with self._lock:
            if ref in self._in_work:
                self.doubled.append(ref)
            self._in_work.add(ref)

    def end(self, ref: PartitionRef, watermark: int) -> None:
        with self._lock:
            self._in_work.remove(ref)
            self.done[ref].append(watermark)

    def is_over(self, names: list[str]) -> bool:
        assert time.monotonic() < self.deadline, dict(self.done)
        with self._lock:
            newest = [self.done[PartitionRef(name, ask(1, path).scope)][-1:] for name in names for path in PATHS]
        return newest == [[LAST]] * len(newest)


class Crowds(Fixtures):
    def test_nothing_is_lost_or_in_work_twice_however_many_publish_and_register(self, buses: Callable[[], Bus]) -> None:
        names = ["Issue", "Note", "Label"]
        work = _Work()

        def publish(bus: Bus, seed: int) -> None:
            watermarks = [(path, watermark) for path in PATHS for watermark in range(1, LAST + 1)]
            random.Random(seed).shuffle(watermarks)
            for path, watermark in watermarks:
                bus.publish(ask(watermark, path))

        def handle(bus: Bus, name: str) -> None:
            mine = consumer(bus, name)
            while not work.is_over(names):
                delivery = mine.next()
                if delivery is not None:
                    work.begin(delivery.ref)
                    work.end(delivery.ref, delivery.request.watermark)
                    mine.ack(delivery)

        everyone = [buses() for _ in range(4)]
        with ThreadPoolExecutor(8) as pool:
            tasks = [pool.submit(publish, bus, seed) for seed, bus in enumerate(everyone[:2])]
            tasks += [pool.submit(handle, bus, name) for name in names for bus in everyone[2:]]
            for task in tasks:
                task.result()
        assert work.doubled == []
        for ref, watermarks in work.done.items():
            assert watermarks == sorted(set(watermarks)), ref
        assert everyone[0].dead_letters() == []
