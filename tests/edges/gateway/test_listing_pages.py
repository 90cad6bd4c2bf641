"""Every listing has pages: `limit`, a position and `next`, without loss or repetition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from easel.edges.http.routes import ROUTES
from easel.edges.methods import METHODS
from easel.edges.paging import DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS
from tests.edges.gateway.node_peer import NodePeer
from tests.edges.http.live import WAITING, LiveEasel, new_session
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.gateway import GatewayClient

# The list in the answer of each method that lists.
LISTS = {
    "canvas.list": "canvases",
    "canvas.records": "records",
    "canvas.confirmations": "confirmations",
    "canvas.asset.list": "assets",
    "canvas.versions": "versions",
    "tools.list": "tools",
    "nodes.list": "nodes",
}


async def read_pages(
    read: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], name: str, position: str = "after"
) -> list[Any]:
    """Return the items of all pages, each of at most one item."""
    items: list[Any] = []
    page = await read({"limit": 1})
    while True:
        assert len(page[name]) <= 1
        items += page[name]
        if "next" not in page:
            return items
        page = await read({"limit": 1, position: page["next"]})


def call(client: GatewayClient, method: str, **params: Any) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    return lambda page: client.call(method, **params, **page)


@rule("RS-67")
def test_every_listing_has_a_limit_and_a_position() -> None:
    listing = {name for name in METHODS if name in LISTS or name.endswith((".list", "s"))}
    assert listing == set(LISTS)
    shapes = [METHODS[name].params for name in LISTS]
    shapes += [
        row.query for row in ROUTES if row.method == "GET" and row.query and "List" in row.query.__name__
    ]
    for shape in shapes:
        fields = set(shape.__struct_fields__)
        assert "limit" in fields, shape
        assert fields & {"after", "before"}, shape


@rule("RS-67")
async def test_tools_and_nodes_come_in_pages(easel: LiveEasel, client: GatewayClient) -> None:
    first, second = sorted(f"node-{new_session()}" for _ in range(2))
    async with NodePeer.connected(easel, first), NodePeer.connected(easel, second):
        tools = (await client.call("tools.list"))["tools"]
        assert await read_pages(call(client, "tools.list"), "tools") == tools
        assert f"{first}__Echo" in {tool["name"] for tool in tools}
        nodes = (await client.call("nodes.list"))["nodes"]
        assert await read_pages(call(client, "nodes.list"), "nodes") == nodes
        ids = [node["nodeId"] for node in nodes]
        assert [one for one in ids if one in (first, second)] == [first, second]
        assert "local" not in ids[1:]


@rule("RS-67")
async def test_confirmations_come_in_pages_newest_first(client: GatewayClient, canvas: str) -> None:
    act = {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": "x"}, "confirm": "always"}
    spec = {"version": 1, "mode": "html", "toolPolicy": {"allow": ["gsv__Echo"]}, "actions": {"go": act}}
    await client.call("canvas.patch", canvasId=canvas, spec=spec)
    asked = [
        (await client.call("canvas.action", canvasId=canvas, actionId="go"))["confirmationId"]
        for _ in range(3)
    ]
    read = call(client, "canvas.confirmations", canvasId=canvas)
    pages = await read_pages(read, "confirmations", "before")
    assert [item["confirmationId"] for item in pages] == asked[::-1]
    assert pages == (await client.call("canvas.confirmations", canvasId=canvas))["confirmations"]


@rule("RS-67")
@pytest.mark.parametrize("board", ["whiteboard", "blackboard"])
async def test_boards_come_in_pages(easel: LiveEasel, board: str) -> None:
    run_id = easel.start(WAITING)
    path = f"/api/runs/{run_id}/{board}"
    names = [("a", "z"), ("a-b", "a"), ("a-b", "k y"), ("b", "é")]
    for edge, key in reversed(names):
        edge_id = {"edge_id": edge} if board == "blackboard" else {}
        assert easel.post(path, {"key": key, "value": 1, "source_node_id": "n", **edge_id}).status_code == 200

    async def read(page: dict[str, Any]) -> dict[str, Any]:
        return easel.get(path, params={name: str(value) for name, value in page.items()}).json()

    entries = await read_pages(read, "entries")
    assert entries == easel.get(path).json()["entries"]
    expected = [key for _, key in names] if board == "blackboard" else sorted(key for _, key in names)
    assert [entry["key"] for entry in entries] == expected
    easel.cancel(run_id)


@rule("RS-67")
async def test_limit_of_a_page_is_checked(client: GatewayClient) -> None:
    assert DEFAULT_PAGE_ITEMS <= MAX_PAGE_ITEMS
    for limit in (0, MAX_PAGE_ITEMS + 1):
        refused = await client.refusal("tools.list", {"limit": limit})
        assert refused is not None
        assert refused.code == 400
