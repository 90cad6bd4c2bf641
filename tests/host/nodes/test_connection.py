"""A connection that has ended: running calls end, later calls are rejected."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from easel.core.call import LOST
from easel.core.tool.node import Node
from easel.host.nodes.connection import NOT_CONNECTED, ConnectedNode
from easel.ids import OWNER, UserId, new_connection_id
from tests.host.nodes.instances import CONTEXT, FakeLink, Instance, failure_of
from tests.support.waiting import within_timeout

if TYPE_CHECKING:
    from tests.host.conftest import RunHarness


def connect(link: FakeLink) -> ConnectedNode:
    node = Node(
        account_id=OWNER,
        node_id="laptop",
        user_id=UserId(OWNER),
        connection_id=new_connection_id(),
        instance_id="ins_a",
        version="1",
        platform="test",
        tools={},
    )
    return ConnectedNode(node, link, datetime.now(UTC), max_calls=4)


async def test_disconnect_ends_running_calls_as_lost_and_rejects_later_ones() -> None:
    link = FakeLink()
    node = connect(link)
    running = asyncio.create_task(node.call("laptop__Echo", {}))
    await within_timeout(link.invoked.get())
    node.mark_disconnected()
    assert await within_timeout(running) == LOST, "the node may have executed it"
    assert await within_timeout(node.call("laptop__Echo", {})) is NOT_CONNECTED
    assert link.invoked.empty()
    assert link.cancelled.empty(), "nothing is running that could be cancelled"


async def test_tool_found_before_its_node_disconnected_fails_at_once(harness: RunHarness) -> None:
    """An agent, or a person who has to confirm, takes a while between finding a tool and calling it."""
    instance = Instance(harness)
    _, link, registration = await instance.connect()
    tool = await instance.nodes.find(OWNER, "laptop__Echo")
    assert tool is not None
    await instance.nodes.disconnect(registration)
    assert "the call was not sent" in await failure_of(asyncio.ensure_future(tool.use({}, CONTEXT)))
    assert link.invoked.empty()
    await instance.nodes.close()
