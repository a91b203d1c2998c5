"""Qdrant as a target for documents: one collection per index, and one of Instep's own (`_instep`).

* `points`: rows as points: their ids, what a request may hold, and conditions on them. Pure.
* `collections`: what is asked of Qdrant, on a server (`server`) or in this process (`edge`).
* `journal`: epochs, marks, attempts and promotions, as a log that only grows at its end.
* `writing`, `searching`, `serving`: what the parts of the port need; `target` puts them together.
"""
