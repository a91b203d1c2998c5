"""Bars in a notebook: a real kernel of Jupyter shows a widget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

CELL = """
import instep
with instep.Bars() as progress:
    progress.begin("Note", 4, "document")
    progress.advance("Note", 3)
"""


@pytest.fixture
def kernel() -> Iterator[BlockingKernelClient]:
    """Over sockets of files: nothing listens on a port."""
    manager = KernelManager(transport="ipc")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_bars_in_a_notebook_are_a_widget_that_shows_how_far_each_entity_is(kernel: BlockingKernelClient) -> None:
    shown: list[dict[str, Any]] = []
    reply = kernel.execute_interactive(CELL, timeout=120, output_hook=shown.append)
    assert reply["content"]["status"] == "ok", reply["content"]
    data = [each["content"]["data"] for each in shown if each["msg_type"] == "display_data"]
    assert "application/vnd.jupyter.widget-view+json" in data[0]
    assert any("Note" in each["text/plain"] and "3/4" in each["text/plain"] for each in data[1:])
    assert [each for each in shown if each["msg_type"] == "stream"] == []
