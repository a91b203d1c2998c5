"""OpenSearch as a target for documents: one index (of the server) per index, and one of Instep's own for journals.

* `names`, `layout`: what indexes are called, and how they are made.
* `connection`: a server, what is asked again, and what its errors mean; `indexes`: what is asked of it.
* `log`: epochs, marks, attempts and promotions (`instep.targets.journal`) as entries that are never written over.
* `items`, `pressure`, `bulk`: rows as parts of bulk requests, how much of that at once, and how they get in.
* `writing`, `searching`, `serving`: what the parts of the port need; `target` puts them together.
"""
