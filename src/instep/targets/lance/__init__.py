"""Lance: the embedded default target. A folder or a bucket, no server.

A physical index is the dataset `<uri>/<physical>.lance`; an alias is the file
`<uri>/<alias>.alias-<epoch>.json` of the highest epoch.
"""

from instep.targets.lance.tables import LanceTableTarget
from instep.targets.lance.target import LanceTarget

__all__ = ["LanceTableTarget", "LanceTarget"]
