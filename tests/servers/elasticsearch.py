"""Elasticsearch from Maven Central: the node without its modules, which are in no repository.

8.19 is the last one that runs on Java 17. Of the modules it has what is in the program beside this one: no scripts.
"""

from __future__ import annotations

import atexit
import functools

from tests.servers.jars import jars
from tests.servers.node import Node

_NODE = ("org.elasticsearch:elasticsearch:8.19.5",)
_TRANSPORT = ("org.elasticsearch.plugin:transport-netty4:8.19.5",)


class ElasticsearchServer(Node):
    kind = "elasticsearch"
    program = "ElasticsearchServer.java"


@functools.cache
def running_elasticsearch() -> ElasticsearchServer:
    """The one of this process; skips the test where its jars cannot be had."""
    server = ElasticsearchServer([jars(_NODE).needed()], [jars(_TRANSPORT).needed()])
    atexit.register(server.stop)
    server.start()
    return server
