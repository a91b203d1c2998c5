"""Read back some documents of a new index, or all of a small one, before it is served: each must have all of its
chunks, and no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from instep.domain.identity import content_hash
from instep.domain.manifest import ManifestEntry
from instep.ledger.ledger import Ledger

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.entities.documents.setup import DocumentSetup

#: Number of documents that are read back.
SAMPLES: Final = 20


def not_as_recorded(setup: DocumentSetup, ledger: Ledger, instance: str, physical: str, epoch: int) -> str | None:
    """A sampled document that differs between target and ledger, as text, or None. `epoch` is that of the partition's
    lease.
    """
    entries = _entries(setup.samples, instance, ledger)
    if not entries:
        return None
    import numpy as np

    from instep.pipeline.documents.digest import chunk_digests, document_digests

    base = setup.target.fence(physical, epoch)
    found = setup.target.writer(physical, base).existing([each.document_id for each in entries])
    places = {each.document_id: place for place, each in enumerate(entries)}
    owner = np.array([places[str(each)] for each in found["document_id"].to_pylist()], np.int64)
    ids, hashes = (cast("pa.StringArray", found[name].combine_chunks()) for name in ("chunk_id", "chunk_hash"))
    digests = document_digests(chunk_digests(ids, hashes), owner, len(entries))
    counts = np.bincount(owner, minlength=len(entries))
    for entry, count, digest in zip(entries, counts.tolist(), digests.tolist(), strict=True):
        if count != entry.chunks:
            return f"the target holds {count:,} chunks of {entry.uri} where {entry.chunks:,} were recorded; not served"
        if entry.digest is not None and digest != entry.digest:
            return f"the target holds other chunks of {entry.uri} than were recorded; not served"
    return None


def _entries(samples: int, instance: str, ledger: Ledger) -> list[ManifestEntry]:
    """Sampled documents: different ones for each instance, and always the same for one."""
    documents, _, _ = ledger.totals(instance)
    if documents <= samples:
        return [*ledger.manifest(instance).values()]
    # Ids are hashes, so the id next to any text of that form is a random sample.
    ends = [f"doc_{content_hash(f'{instance} {number}'.encode())}" for number in range(samples)]
    return ledger.sampled(instance, ends)
