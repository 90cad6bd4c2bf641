"""The tools that read and write the boards of an agent's own run.

Owns the definitions and arguments of the tools. The author of a write is the run's agent with the node that
the call names, by default the tool loop. A write is neither read-only nor idempotent: each write creates a
version.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from easel.core.run.boards import LAST_VERSION, MAX_NAME_LENGTH, Board, BoardValue, BoardWriteRequest
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition, object_schema
from easel.host.boards.service import Boards
from easel.host.ports import Tool
from easel.host.runs.log_writer import NODE
from easel.host.tools.native import Args, NativeTool


def _name(description: str) -> Mapping[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH, "description": description}


_KEY = _name("Name of the value.")
_EDGE = _name("Handover that the value belongs to, such as planner-writer.")
_WRITE: Mapping[str, Any] = {
    "key": _KEY,
    "value": {"description": "Any JSON."},
    "node_id": _name(f"Node that writes; {NODE} by default."),
    "expected_version": {
        "type": "integer",
        "minimum": 0,
        "maximum": LAST_VERSION,
        "description": "Write only if the key has this version; 0: only if it does not exist yet.",
    },
}


WHITEBOARD_READ = ToolDefinition(
    "gsv__WhiteboardRead",
    "Read the whiteboard of this run, which all of its nodes share: one key with its version, or all keys.",
    object_schema({"key": _KEY}),
    read_only=True,
)
WHITEBOARD_WRITE = ToolDefinition(
    "gsv__WhiteboardWrite",
    "Write a value on the whiteboard of this run, which all of its nodes share. Returns its new version.",
    object_schema(_WRITE, "key", "value"),
)
BLACKBOARD_READ = ToolDefinition(
    "gsv__BlackboardRead",
    "Read the blackboard of this run, where each edge has its own values: a key of an edge, an edge, or all.",
    {**object_schema({"edge_id": _EDGE, "key": _KEY}), "dependentRequired": {"key": ["edge_id"]}},
    read_only=True,
)
BLACKBOARD_WRITE = ToolDefinition(
    "gsv__BlackboardWrite",
    "Write a value for one edge, from one node to another, on the blackboard of this run. "
    "Returns its new version.",
    object_schema({"edge_id": _EDGE, **_WRITE}, "edge_id", "key", "value"),
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
    request = BoardWriteRequest(
        board, args["key"], args["value"], node_id, args.get("edge_id"), args.get("expected_version")
    )
    written = await boards.write(context.principal, context.run.run_id, request, context.run)
    return {"key": request.key, **_edge(request.edge_id), "version": written.version}


async def _read(boards: Boards, board: Board, args: Args, context: ToolContext) -> Any:
    edge_id = args.get("edge_id")
    if "key" in args:
        value = await boards.read(context.account_id, context.run.run_id, board, args["key"], edge_id)
        return await _to_entry(boards, context, value)
    values = await boards.read_all(context.account_id, context.run.run_id, board, edge_id)
    return {"entries": [await _to_entry(boards, context, value) for value in values]}


async def _to_entry(boards: Boards, context: ToolContext, value: BoardValue) -> dict[str, Any]:
    return {
        "key": value.board_key.key,
        **_edge(value.board_key.edge),
        "version": value.version,
        "value": await boards.restore(context.account_id, value),
        "written_by": {"kind": value.kind.value, "agent_id": value.agent_id, "node_id": value.node_id},
    }


def _edge(edge_id: str | None) -> dict[str, str]:
    return {} if edge_id is None else {"edge_id": edge_id}
