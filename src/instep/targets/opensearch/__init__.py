"""OpenSearch as a target for documents: one index (of the server) per index, and one of Instep's own for journals.

* `layout`: names, mappings and settings of indexes.
* `connection`: a server, its errors and retries; `indexes`: requests to it.
* `log`: epochs, marks, attempts and promotions (`instep.targets.journal`) as entries that are never written over.
* `bulk`: rows in bulk requests, and how many of these at once.
* `writing`, `searching`: writing by tasks, and queries; `target` puts them together.
"""
