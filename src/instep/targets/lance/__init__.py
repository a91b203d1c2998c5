"""Lance: the embedded default target. A folder or a bucket, no server.

A physical index is the dataset `<uri>/<physical>.lance`; an alias the file `<uri>/<alias>.alias.json`.
"""

from instep.targets.lance.target import LanceTarget

__all__ = ["LanceTarget"]
