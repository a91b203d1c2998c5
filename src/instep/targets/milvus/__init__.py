"""Milvus as a target for documents: one collection per index, and one of Instep's own (`_instep`).

* `names`: names of collections, partitions and aliases, and texts in filters. Pure.
* `place`: what is asked of Milvus, on a server or in this process (Milvus Lite), and what its errors mean.
* `layout`: collections as they are made and found.
* `directory`: which chunks a document may have, for Milvus Lite, which finds rows by their ids only.
* `journal`: epochs, marks and attempts of an index, as records of `_instep`.
* `staging`, `serving`, `searching`: what the parts of the port need; `target` puts them together.
"""
