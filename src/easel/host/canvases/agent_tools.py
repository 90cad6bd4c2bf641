"""The agent's tools to write canvases and to read logs. CV-49

Owns the definitions and results of the tools. They always act as an agent, even when a canvas action of a
person calls them: a spec that they write has the reach of an agent and is not accepted until a person accepts
it (RS-59). Does not know models.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from easel.core.canvas.assets import asset_content
from easel.core.canvas.canvas import Canvas, CanvasSnapshot
from easel.core.principal import MAIN_AGENT, Principal, PrincipalKind, as_program
from easel.core.session.session import session_id_of_key
from easel.core.stream.envelope import Visibility
from easel.core.stream.log import LoggedEvent
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition, object_schema
from easel.errors import BadInput, Forbidden, NotFound
from easel.host.canvases.drafts import Draft
from easel.host.canvases.library import CanvasLibrary
from easel.host.canvases.views import NO_CONNECTION, CanvasViews
from easel.host.ports import CanvasStore, RunStore, Tool
from easel.host.tools.native import Args, NativeTool
from easel.ids import CanvasId, RunId, SessionId, is_generated_id, scoped_key

MAX_LISTED = 200
MAX_LINES = 500
DEFAULT_LINES = 80
MAX_SESSION_RUNS = 10  # newest runs of a session whose logs are read
MAX_LINE_LENGTH = 500

_CANVAS_ID = {"type": "string", "description": "The canvas's id: letters, digits and . _ : -"}
_REVISION = {
    "type": "integer",
    "minimum": 0,
    "description": "Fail unless the canvas is at this revision. Default: any revision.",
}
_ENCODED = object_schema({"base64": {"type": "string"}}, "base64")

CANVAS = ToolDefinition(
    "gsv__Canvas",
    "Creates, changes and reads canvases: web pages with a state and with buttons that run tools. `upsert` "
    'stores a spec ({"version":1,"toolPolicy":{"allow":[tools],"hosts":[of local__Fetch]},"state":{…},'
    '"actions":{name:{"kind":"tool.call"|"session.send"|"state.patch",…}}}), a title, a state and assets '
    "(assets/index.html with data-gsv-text, data-gsv-model, data-gsv-action and, for lists, data-gsv-each); "
    "`get` and `list` read them; "
    "`open` and `close` manage a view; `patchState` changes the state by JSON Patch (add, replace, remove). "
    'In args {{state.x}} and {{input.x}} are text, and {"$value": "state.x"} is the value itself. '
    'In a command a value must be plain: letters, digits, _.:/@+,=-. "text": ["input.x"] permits any text. '
    "Until a person accepts the canvas, its actions ask for confirmation.",
    {
        "type": "object",
        "properties": {
            "operation": {"enum": ["upsert", "get", "list", "open", "close", "patchState"]},
            "canvasId": _CANVAS_ID,
            "agentId": {"type": "string"},
            "title": {"type": "string"},
            "spec": {"type": "object"},
            "state": {"type": "object"},
            "assets": {
                "type": "object",
                "additionalProperties": {"anyOf": [{"type": "string"}, _ENCODED]},
                "description": "By path, such as assets/index.html: text, or {base64} for binary content.",
            },
            "patch": {
                "type": "array",
                "items": {"type": "object"},
                "description": "RFC 6902 operations on the state.",
            },
            "viewId": {"type": "string"},
            "expectedRevision": _REVISION,
        },
        "required": ["operation"],
        "additionalProperties": False,
        "if": {"properties": {"operation": {"const": "list"}}},
        "else": {"required": ["operation", "canvasId"]},
    },
)
LOGS = ToolDefinition(
    "gsv__LogsGet",
    "Reads the newest lines of a log: of a run (`runId`), a canvas (`canvasId`), or the runs of a session "
    "(`sessionKey`; default: your own).",
    {
        "type": "object",
        "properties": {
            "runId": {"type": "string"},
            "canvasId": _CANVAS_ID,
            "sessionKey": {"type": "string", "description": "agent:{agentId}:{name}"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LINES, "default": DEFAULT_LINES},
        },
        "additionalProperties": False,
        "maxProperties": 2,
    },
    read_only=True,
)


def canvas_tools(
    library: CanvasLibrary, views: CanvasViews, runs: RunStore, canvases: CanvasStore
) -> list[Tool]:
    """Return the tools `gsv__Canvas` and `gsv__LogsGet`."""
    return [
        NativeTool(CANVAS, _CanvasTool(library, views).use),
        NativeTool(LOGS, _LogsTool(runs, canvases).use),
    ]


# --- gsv__Canvas --------------------------------------------------------------------------------------------


class _CanvasTool:
    def __init__(self, library: CanvasLibrary, views: CanvasViews) -> None:
        self._library = library
        self._views = views

    async def use(self, args: Args, context: ToolContext) -> Any:
        principal = as_program(context.principal, PrincipalKind.AGENT, MAIN_AGENT)
        match args["operation"]:
            case "upsert":
                return await self._upsert(principal, args, context.session_key)
            case "get":
                return _describe_snapshot(await self._library.get(principal, args["canvasId"]))
            case "list":
                canvases = await self._library.list_canvases(
                    principal, agent_id=args.get("agentId"), after=None, limit=MAX_LISTED
                )
                return {"canvases": [_describe_canvas(canvas) for canvas in canvases]}
            case "open":
                view, snapshot = await self._views.open(
                    principal, args["canvasId"], context.session_key[:128], NO_CONNECTION
                )
                return {
                    "viewId": view.view_id,
                    "viewUrl": _view_url(snapshot.canvas),
                    "revision": snapshot.canvas.revision,
                }
            case "close":
                return {
                    "canvasId": args["canvasId"],
                    "closed": await self._views.close(
                        principal, args["canvasId"], NO_CONNECTION, args.get("viewId")
                    ),
                }
            case _:
                patched = await self._library.patch(
                    principal,
                    args["canvasId"],
                    state_patch=_require(args, "patch"),
                    spec=None,
                    title=None,
                    expected_revision=args.get("expectedRevision"),
                )
                return {
                    "canvasId": args["canvasId"],
                    "revision": patched.canvas.revision,
                    "state": patched.canvas.state,
                }

    async def _upsert(self, principal: Principal, args: Args, session_key: str) -> Any:
        assets = args.get("assets")
        draft = Draft(
            canvas_id=args["canvasId"],
            agent_id=args.get("agentId"),
            title=args.get("title"),
            owner_session_key=session_key,
            spec=args.get("spec"),
            state=args.get("state"),
            assets=None
            if assets is None
            else {path: asset_content(path, asset) for path, asset in assets.items()},
            expected_revision=args.get("expectedRevision"),
        )
        snapshot = await self._library.upsert(principal, draft)
        spec = args.get("spec")
        warnings = await self._library.warnings(principal, spec, snapshot.canvas, session_key=session_key)
        return {**_describe_snapshot(snapshot), "warnings": warnings, "viewUrl": _view_url(snapshot.canvas)}


def _require(args: Args, name: str) -> Any:
    if name not in args:
        raise BadInput(problem=f"{name}: is required for `{args['operation']}`.")
    return args[name]


def _view_url(canvas: Canvas) -> str:
    return f"/canvas/{canvas.agent_id}/{canvas.canvas_id}"


def _describe_canvas(canvas: Canvas) -> dict[str, Any]:
    return {
        "canvasId": canvas.canvas_id,
        "agentId": canvas.agent_id,
        "title": canvas.title,
        "revision": canvas.revision,
    }


def _describe_snapshot(snapshot: CanvasSnapshot) -> dict[str, Any]:
    canvas = snapshot.canvas
    return {
        **_describe_canvas(canvas),
        "spec": canvas.spec,
        "state": canvas.state,
        "assets": [asset.path for asset in snapshot.assets],
        "accepted": snapshot.is_accepted,
        "views": len(snapshot.live_views),
        **({"failing": [job.to_json() for job in snapshot.failing]} if snapshot.failing else {}),
    }


# --- gsv__LogsGet -------------------------------------------------------------------------------------------


class _LogsTool:
    """Returns the public events of a user's own logs as lines."""

    def __init__(self, runs: RunStore, canvases: CanvasStore) -> None:
        self._runs = runs
        self._canvases = canvases

    async def use(self, args: Args, context: ToolContext) -> Any:
        names = [name for name in ("runId", "canvasId", "sessionKey") if name in args]
        if len(names) > 1:
            raise BadInput(problem=f"Only one of {names[0]} and {names[1]} may be given.")
        limit = args.get("limit", DEFAULT_LINES)
        if context.unaccepted_canvas is not None:
            await self._check_own_log(args, context)
        if "canvasId" in args:
            events = await self._read_canvas(context, args["canvasId"], limit)
        elif "runId" in args:
            events = await self._read_run(context, args["runId"], limit)
        else:
            events = await self._read_session(context, args.get("sessionKey", context.session_key), limit)
        lines = [_format_line(event) for event in events if event.visibility is Visibility.PUBLIC][-limit:]
        return {"lines": lines, "text": "\n".join(lines)}

    async def _check_own_log(self, args: Args, context: ToolContext) -> None:
        """Raise Forbidden unless the log is of the unaccepted canvas that calls, or of its session. RS-63"""
        session_id = session_id_of_key(context.session_key)
        if "canvasId" in args:
            is_own = args["canvasId"] == context.unaccepted_canvas
        elif "runId" in args:
            run_id = args["runId"]
            run = await self._runs.get(context.account_id, RunId(run_id)) if is_generated_id(run_id) else None
            is_own = run is not None and run.session_id == session_id
        else:
            is_own = session_id_of_key(args.get("sessionKey", context.session_key)) == session_id
        if not is_own:
            raise Forbidden(
                problem="until a person accepts this canvas, it reads only its own log and its session's."
            )

    async def _read_canvas(self, context: ToolContext, canvas_id: str, limit: int) -> Sequence[LoggedEvent]:
        bounds = await self._canvases.bounds(context.account_id, canvas_id)
        if bounds is None:
            raise NotFound(what="canvas", id=canvas_id[:200])
        return await self._canvases.events_after(
            scoped_key(context.account_id, CanvasId(canvas_id)), max(0, bounds.newest - limit), limit
        )

    async def _read_run(self, context: ToolContext, run_id: str, limit: int) -> Sequence[LoggedEvent]:
        bounds = (
            await self._runs.bounds(context.account_id, RunId(run_id)) if is_generated_id(run_id) else None
        )
        if bounds is None:
            raise NotFound(what="run", id=run_id[:200])
        return await self._runs.events_after(RunId(run_id), max(0, bounds.newest - limit), limit)

    async def _read_session(self, context: ToolContext, key: str, limit: int) -> Sequence[LoggedEvent]:
        session_id = SessionId(session_id_of_key(key))
        runs = await self._runs.list_runs(
            context.account_id, session_id=session_id, statuses=[], before=None, limit=MAX_SESSION_RUNS
        )
        events: list[LoggedEvent] = []
        for run in runs:  # newest run first, until there are enough events
            events[:0] = await self._runs.events_after(run.run_id, max(0, run.last_seq - limit), limit)
            if len(events) >= limit:
                break
        return events


def _format_line(event: LoggedEvent) -> str:
    """Return one line with the event's time, type and data, without visibility and provenance."""
    data = msgspec.json.decode(event.data)
    for name in ("visibility", "provenance"):
        data.pop(name, None)
    at = event.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = f"{at} {event.type} {msgspec.json.encode(data).decode()}"
    return line if len(line) <= MAX_LINE_LENGTH else line[: MAX_LINE_LENGTH - 1] + "…"
