"""Texts of a wave at the embedder's batch API: gathered before the wave is run, which then finds their vectors kept.

A batch is written down in the ledger before it is submitted, under a key that it carries. The worker that goes on
after a crash finds it by that, waits for it and takes what it gave, before anything else is submitted: nothing is paid
for twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from instep.domain.identity import content_hash
from instep.domain.jobs import JobPart
from instep.domain.money import Bill, Granted, Tariff
from instep.domain.refs import own_name
from instep.domain.texts import amount
from instep.domain.waves import Wave
from instep.entities.setup import EntitySetup
from instep.errors import InstepError, Overdrawn, UserError
from instep.jobs.budget import Budget
from instep.jobs.heartbeat import Heartbeat
from instep.jobs.stopping import Stopping
from instep.ledger.embedding_batches import SubmittedBatch
from instep.pipeline.documents.embed.embedder import check_vectors
from instep.pipeline.documents.embed.http import HttpEmbedder
from instep.pipeline.documents.embed.meter import most_tokens
from instep.pipeline.documents.embed.openai_batches import (
    MOST_BYTES,
    MOST_TEXTS,
    Batch,
    BatchApi,
    FilesGone,
    Result,
)
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.pipeline.documents.texts_counted import wave_texts
from instep.pipeline.documents.vectors import EmbeddingCache
from instep.planning.context import Context

#: Seconds between two looks at a batch: the first pause, how it grows, and the longest one.
FIRST_LOOK, GROWTH, LONGEST_LOOK = 1.0, 1.5, 60.0
#: Milliseconds after which a batch that nobody finds was never submitted: a request may be on its way that long.
ON_ITS_WAY: Final = 60_000
#: The clocks of the ledger and of the API may differ by so much, in seconds.
_CLOCKS: Final = 24 * 3_600
#: A batch of so few texts is not made smaller.
_FEW: Final = 100
#: Vectors that are kept at once.
_PORTION: Final = 1_024


class Batching:
    """The batches of one part, made by one worker."""

    def __init__(
        self,
        setup: EntitySetup,
        part: JobPart,
        context: Context,
        budget: Budget,
        *,
        worker_id: str,
        heartbeat: Heartbeat,
    ) -> None:
        self._setup = setup
        self._part = part
        self._context = context
        self._batches = context.ledger.embedding_batches
        self._budget = budget
        self._worker = worker_id
        self._heartbeat = heartbeat
        self._entity = own_name(part.ref.entity)
        #: Texts that a batch has refused, by their hashes: they are embedded one by one, so that it shows why.
        self._refused: set[str] = set()
        #: Keys of batches whose vectors this process has kept, and hashes of these.
        self._kept: set[str] = set()
        self._given: set[str] = set()
        #: Texts of a batch, at most.
        self._most = MOST_TEXTS

    def prepare(self, wave: Wave, program: object) -> None:
        """Have the missing vectors of a wave made and kept. Raises `Overdrawn` if the budget is not enough for one."""
        tariff = self._setup.tariff
        if tariff is None or not tariff.batched or not isinstance(program, DocumentProgram):
            return
        cache, embedder = program.kept(), program.embedder
        if cache is None or not isinstance(embedder, HttpEmbedder):
            return
        api = BatchApi(embedder)
        with self._released_in_the_end():
            self._go_on(api, cache, tariff.of_batches, finished=False)
            while texts := self._missing(wave, program, cache):
                if self._go_on(api, cache, tariff.of_batches, finished=True):
                    continue
                self._submit(api, cache, tariff.of_batches, texts)

    @contextmanager
    def _released_in_the_end(self) -> Iterator[None]:
        """Whatever ends this, others may go on with what was submitted."""
        try:
            yield
        except BaseException:
            with suppress(InstepError):
                self._batches.release(self._worker)
            raise

    def _missing(self, wave: Wave, program: DocumentProgram, cache: EmbeddingCache) -> dict[str, str]:
        """The texts without a vector, by their hashes: as many as a batch may have."""
        found: dict[str, str] = {}
        size = 0

        def take(texts: list[str]) -> None:
            nonlocal size
            new = {content_hash(each.encode()): each for each in texts}
            asked = [key for key in new if key not in found and key not in self._refused]
            known = cache.known(pa.array(asked, pa.string())) if asked else set()
            for key in asked:
                if key not in known and len(found) < self._most and size < MOST_BYTES:
                    found[key] = new[key]
                    size += len(new[key].encode())

        self._context.progress.say(self._part.ref.label, "looks for texts to embed")
        wave_texts(program, wave, take)
        if lost := self._given & found.keys():
            raise UserError(
                f"{amount(len(lost), 'vector')} of a batch could not be kept",
                where=str(self._part.ref),
                hint="Check the folder `embeddings` in the project's state: is it full, or not writable?",
            )
        return found

    # Batches that were submitted before.

    def _go_on(self, api: BatchApi, cache: EmbeddingCache, tariff: Tariff, *, finished: bool) -> bool:
        """Take what batches gave whose workers are gone; those that are `finished` as well. Whether there were any."""
        left = self._batches.left(self._entity, api.embedder.fingerprint, self._worker)
        todo = [each for each in left if each.key not in self._kept and (finished or not each.finished)]
        for each in todo:
            batch = self._found(api, each)
            if batch is not None:
                # Its files stay for a month: another server may need them.
                self._finish(api, cache, tariff, each, batch)
        return bool(todo)

    def _found(self, api: BatchApi, submitted: SubmittedBatch) -> Batch | None:
        if submitted.batch_id is not None:
            known = api.get(submitted.batch_id)
            if known is None:  # The API has forgotten it.
                self._budget.pay(submitted.key, None, 0)
                self._batches.forget(submitted.key)
            return known
        age, began = submitted.age, self._context.clock.monotonic()
        while True:
            found = api.find(submitted.key, submitted.made_at / 1000 - _CLOCKS)
            if found is not None:
                self._batches.submitted(submitted.key, found.id)
                return found
            if age + (self._context.clock.monotonic() - began) * 1000 > ON_ITS_WAY:
                self._never_made(api, submitted.key)
                return None
            self._pause(FIRST_LOOK)

    # A new batch.

    def _submit(self, api: BatchApi, cache: EmbeddingCache, tariff: Tariff, texts: Mapping[str, str]) -> None:
        key = self._context.ids.new()
        self._batches.intend(key, self._entity, api.embedder.fingerprint, self._worker)
        prompt = api.embedder.prompt
        wanted = most_tokens([prompt + each for each in texts.values()])
        grant = self._budget.reserve(key, tariff.cost(wanted), tariff)
        chosen = _affordable(texts, prompt, grant, tariff)
        if not chosen:
            self._never_made(None, key)
            raise Overdrawn("the budget is used up")
        try:
            batch = api.submit(key, chosen.items())
        except UserError:
            self._never_made(api, key)
            raise
        self._batches.submitted(key, batch.id)
        self._context.progress.say(self._part.ref.label, f"waits for {batch.id}: {amount(len(chosen), 'text')}")
        batch = self._finish(api, cache, tariff, SubmittedBatch(key, batch.id, 0, 0, finished=False), batch)
        with suppress(InstepError):  # The API removes its files by itself, some day.
            api.forget(batch)
        if batch.too_large and len(chosen) > _FEW:
            self._most = len(chosen) // 2
            return
        given = self._given & chosen.keys()
        if batch.status == "cancelled" or (batch.status != "completed" and not given):
            raise UserError(
                f"{batch.id} has {batch.status}: {batch.problem or 'no reason was said'}",
                where=str(self._part.ref),
                hint="Fix that and run again, or do not use the batch API: `batch_api: false` under `embed`.",
            )
        if batch.status == "completed":
            # A text of which nothing came back is not submitted again and again.
            self._refused |= chosen.keys() - given

    def _never_made(self, api: BatchApi | None, key: str) -> None:
        self._budget.pay(key, Bill(), 0)
        if api is not None:
            with suppress(InstepError):
                api.drop_upload(key)
        self._batches.forget(key)

    def _finish(
        self, api: BatchApi, cache: EmbeddingCache, tariff: Tariff, submitted: SubmittedBatch, batch: Batch
    ) -> Batch:
        """Wait for a batch, keep what it gives, and pay for it. Returns it as it has ended."""
        pause, lost = FIRST_LOOK, False
        while not batch.ended:
            self._pause(pause)
            pause, before = min(LONGEST_LOOK, pause * GROWTH), batch
            found = api.get(batch.id)
            lost, batch = found is None, found or before.gone
            if batch.done > before.done:
                self._context.progress.say(self._part.ref.label, f"{batch.id}: {batch.done:,} of {batch.total:,} done")
        # Of a batch that is not known any more, nobody knows what it has cost.
        bill = None if lost else self._keep(api.results(batch), cache)
        if not submitted.finished:
            self._budget.pay(submitted.key, bill, 0 if bill is None else tariff.cost(bill.most))
            self._batches.finish(submitted.key, self._worker)
        self._kept.add(submitted.key)
        return batch

    def _keep(self, results: Iterable[Result], cache: EmbeddingCache) -> Bill | None:
        """Keep vectors. Returns the bill, None if not all answers say what they cost."""
        bill, told = Bill(), True
        waiting: list[tuple[str, np.ndarray[Any, np.dtype[np.float32]]]] = []

        def put() -> None:
            if waiting:
                hashes, vectors = zip(*waiting, strict=True)
                cache.put(pa.array(hashes, pa.string()), np.stack(vectors))
                self._given.update(hashes)
                waiting.clear()

        try:
            for each in results:
                told &= each.tokens is not None
                bill = bill.plus(Bill(each.vector is not None, each.tokens or 0))
                if not each.hash:
                    continue
                if each.vector is None or check_vectors(each.vector[None]):
                    self._refused.add(each.hash)
                    continue
                waiting.append((each.hash, each.vector))
                if len(waiting) >= _PORTION:
                    put()
        except FilesGone:  # What it gave is lost: its texts are missing, and nobody knows what they have cost.
            told = False
        finally:  # Whatever comes after it: this is paid for.
            put()
        return bill if told else None

    def _pause(self, seconds: float) -> None:
        if self._context.stops():
            raise Stopping
        self._heartbeat.require(self._part.ref)
        self._context.clock.sleep(seconds)
        self._heartbeat.require(self._part.ref)


def _affordable(texts: Mapping[str, str], prompt: str, grant: Granted, tariff: Tariff) -> dict[str, str]:
    """The first of these texts that what was granted is enough for behind the prompt, whatever they cost."""
    if tariff.limit is None or not grant.short:
        return dict(texts)
    left, chosen = tariff.tokens(grant.cost), dict[str, str]()
    for key, text in texts.items():
        left -= most_tokens([prompt + text])
        if left < 0:
            break
        chosen[key] = text
    return chosen
