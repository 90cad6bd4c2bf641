"""A node's connection that has ended: whoever asks it something after that is told at once, and does not wait for ever."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from easel.core.tool.call import LOST, NOT_ASKED
from easel.core.tool.node import Node
from easel.host.nodes.connection import ConnectedNode
from easel.ids import OWNER, new_connection_id
from tests.host.nodes.test_registry import CONTEXT, Instance, Link, why
from tests.support.waiting import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from tests.host.conftest import Bench


def a_connection(link: Link) -> ConnectedNode:
    node = Node(
        user_id=OWNER,
        node_id="laptop",
        connection_id=new_connection_id(),
        instance_id="ins_a",
        version="1",
        platform="test",
        tools={},
    )
    return ConnectedNode(node, link, datetime.now(UTC), max_calls=4)


async def test_what_is_under_way_when_the_connection_ends_is_lost_and_what_comes_after_is_not_asked() -> None:
    link = Link()
    one = a_connection(link)
    under_way = asyncio.create_task(one.call("laptop__Echo", {}))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await link.asked.get()
        one.lose()
        assert await under_way == LOST, "it may have been done"
        assert await one.call("laptop__Echo", {}) is NOT_ASKED, "and this has not been"
    assert link.asked.empty()
    assert link.cancelled.empty(), "nothing is left to be stopped"


async def test_a_tool_that_was_found_before_its_node_left_is_not_waited_for(bench: Bench) -> None:
    """An agent, or a person who is asked for consent, takes a while between the two."""
    here = Instance(bench)
    _, link, arrival = await here.connect()
    tool = await here.nodes.find(OWNER, "laptop__Echo")
    assert tool is not None
    await here.nodes.leave(arrival)
    assert "it was not asked" in await why(asyncio.ensure_future(tool.use({}, CONTEXT)))
    assert link.asked.empty()
    await here.nodes.close()
