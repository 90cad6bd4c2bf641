"""The tools by which an agent reads and writes the boards of its own run.

A write names its author itself: the agent is the run's, the node is the one the agent works in or the tool loop. It is
neither read-only nor idempotent: each one is a version of its own.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from easel.core.run.boards import LAST_VERSION, MAX_NAME_LENGTH, Board, BoardValue, BoardWriteRequest
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.host.boards.service import Boards
from easel.host.ports import Tool
from easel.host.runs.log_writer import NODE
from easel.host.tools.native import Args, NativeTool


def _name(says: str) -> Mapping[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH, "description": says}


_KEY = _name("Under which name the value stands.")
_EDGE = _name("The handover that the value belongs to, such as planner-writer.")
_WRITE: Mapping[str, Any] = {
    "key": _KEY,
    "value": {"description": "Any JSON."},
    "node_id": _name(f"The node that writes; {NODE} if left out."),
    "expected_version": {
        "type": "integer",
        "minimum": 0,
        "maximum": LAST_VERSION,
        "description": "Write only if the key is at this version; 0: only if it is not there yet.",
    },
}


def _takes(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


WHITEBOARD_READ = ToolDefinition(
    "gsv__WhiteboardRead",
    "Reads the whiteboard of this run, which all of its nodes share: one key with its version, or everything.",
    _takes({"key": _KEY}),
    read_only=True,
)
WHITEBOARD_WRITE = ToolDefinition(
    "gsv__WhiteboardWrite",
    "Writes a value on the whiteboard of this run, which all of its nodes share, and tells its new version.",
    _takes(_WRITE, "key", "value"),
)
BLACKBOARD_READ = ToolDefinition(
    "gsv__BlackboardRead",
    "Reads the blackboard of this run, on which each edge has values of its own: one key of an edge, an edge, or everything.",
    {**_takes({"edge_id": _EDGE, "key": _KEY}), "dependentRequired": {"key": ["edge_id"]}},
    read_only=True,
)
BLACKBOARD_WRITE = ToolDefinition(
    "gsv__BlackboardWrite",
    "Writes a value on the blackboard of this run for one edge, from one node to another, and tells its new version.",
    _takes({"edge_id": _EDGE, **_WRITE}, "edge_id", "key", "value"),
)


def board_tools(boards: Boards) -> list[Tool]:
    return [
        NativeTool(WHITEBOARD_READ, partial(_read, boards, Board.WHITEBOARD)),
        NativeTool(WHITEBOARD_WRITE, partial(_write, boards, Board.WHITEBOARD)),
        NativeTool(BLACKBOARD_READ, partial(_read, boards, Board.BLACKBOARD)),
        NativeTool(BLACKBOARD_WRITE, partial(_write, boards, Board.BLACKBOARD)),
    ]


async def _write(boards: Boards, board: Board, args: Args, context: ToolContext) -> Any:
    node_id = args.get("node_id", NODE)  # CC-18
    ask = BoardWriteRequest(
        board, args["key"], args["value"], node_id, args.get("edge_id"), args.get("expected_version")
    )
    written = await boards.write_as_agent(context, ask)
    return {"key": ask.key, **_edge(ask.edge_id), "version": written.version}


async def _read(boards: Boards, board: Board, args: Args, context: ToolContext) -> Any:
    edge_id = args.get("edge_id")
    if "key" in args:
        return await _told(
            boards,
            context,
            await boards.read(context.user_id, context.run.run_id, board, args["key"], edge_id),
        )
    found = await boards.read_all(context.user_id, context.run.run_id, board, edge_id)
    return {"entries": [await _told(boards, context, one) for one in found]}


async def _told(boards: Boards, context: ToolContext, found: BoardValue) -> dict[str, Any]:
    return {
        "key": found.place.key,
        **_edge(found.place.edge),
        "version": found.version,
        "value": await boards.restore(context.user_id, found),
        "written_by": {"agent_id": found.agent_id, "node_id": found.node_id},
    }


def _edge(edge_id: str | None) -> dict[str, str]:
    return {} if edge_id is None else {"edge_id": edge_id}
