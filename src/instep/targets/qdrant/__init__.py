"""Qdrant as a target for documents: one collection per index, and one of Instep's own (`_instep`).

* `collections`: requests to Qdrant, on a server (`server`) or in this process (`edge`), and rows as points.
* `journal`: epochs, marks, attempts and promotions, as a log that only grows at its end.
* `writing`, `searching`: writing by tasks, and queries; `target` puts them together.
"""
