"""Milvus as a target for documents: one collection per index, and one of Instep's own (`_instep`).

* `location`: requests to Milvus, on a server or in this process (Milvus Lite), its errors, names, texts in filters.
* `layout`: collections as they are made and found.
* `chunk_lists`: the chunks that a document may have, for Milvus Lite, which finds rows by their ids only.
* `journal`: epochs, marks, attempts and aliases, as records of `_instep`.
* `staging`, `searching`: writing by tasks, and queries; `target` puts them together.
"""
