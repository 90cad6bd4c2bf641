"""Synchronise a canvas between a server and a folder: fetch it, compare the two, and send the difference.

Owns the calls. A push is one `canvas.upsert` that expects the revision that was read: the canvas is changed
completely or not at all. Assets that are too large for its request follow it one by one; an interrupted
command is completed by repeating it.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from easel.canvas_folder import files
from easel.canvas_folder.api_client import ApiClient, RequestRefused, ServerUnreachable
from easel.canvas_folder.files import CanvasDir
from easel.core.canvas.folder import (
    PARTS,
    SPEC,
    FolderCanvas,
    ReadResult,
    escape_unprintable,
    find_offloaded,
    from_view,
    is_identical_json,
    read_files,
)
from easel.errors import BadInput
from easel.ids import CanvasId

MAX_ATTEMPTS = 3  # to read a canvas at one revision while it is being changed
RECORDS_PAGE_SIZE = 200
MAX_NAMED_FILES = 4  # in a message
NOT_FOUND, CONFLICT = "NOT_FOUND", "REVISION_CONFLICT"
BODY_LIMIT = "EASEL_MAX_BODY_BYTES"  # named by the error of a request that is too large
_FILE_OF_MEMBER = dict(PARTS.values())


@dataclass(frozen=True, slots=True)
class ServerCanvas:
    """A canvas as the server has it. Revision 0: it does not exist."""

    canvas: FolderCanvas
    descriptor: Mapping[str, Any] = field(default_factory=dict[str, Any])
    revision: int = 0
    is_accepted: bool = True


@dataclass(frozen=True, slots=True)
class FolderDifference:
    """The members of an upsert, assets to put, and paths of assets to remove that make one canvas another."""

    members: Mapping[str, Any]
    put: Mapping[str, bytes]
    removed: Sequence[str]

    @property
    def sent(self) -> list[str]:
        """The files that are sent."""
        return [*dict.fromkeys(_FILE_OF_MEMBER[name] for name in self.members), *self.put]

    @property
    def files(self) -> list[str]:
        return [*self.sent, *self.removed]


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The changes that were made, with the revision and the warnings of the server."""

    revision: int
    difference: FolderDifference
    is_new: bool
    warnings: Sequence[str]

    def describe(self) -> str:
        """Return the changes as one line for the author, without warnings."""
        sent, removed = name_files(self.difference.sent), name_files(self.difference.removed)
        done = [f"created from {sent or 'no files'}"] if self.is_new else [f"{sent} saved"] * bool(sent)
        return ", ".join([*done, *[f"{removed} removed"] * bool(removed)]) + f"; revision {self.revision}"


def name_files(paths: Sequence[str]) -> str:
    names = ", ".join(escape_unprintable(path) for path in paths[:MAX_NAMED_FILES])
    return names + (f" and {len(paths) - MAX_NAMED_FILES} more" if len(paths) > MAX_NAMED_FILES else "")


# --- from the folder ----------------------------------------------------------------------------------------


def read_canvas(place: CanvasDir, *, max_bytes: int) -> ReadResult:
    """Return the canvas of a folder with the problems of its files. No asset may exceed `max_bytes`."""
    try:
        return read_files(files.read(place.folder, max_bytes=max_bytes), place.agent_id, place.canvas_id)
    except BadInput as problem:
        empty = FolderCanvas(canvas_id=place.canvas_id, agent_id=place.agent_id)
        return ReadResult(empty, [problem.message])


# --- from the server ----------------------------------------------------------------------------------------


def fetch(client: ApiClient, canvas_id: str, agent_id: str | None = None) -> ServerCanvas:
    """Return the canvas with its assets.

    Assets are fetched one by one, and again if the canvas has changed in between. If the canvas changes all
    the time, the last attempt is used: such frequent changes are changes of the state, which one response
    contains completely. Raises `BadInput` if the canvas belongs to another agent.
    """
    view = latest = _find(client, "canvas.get", canvasId=canvas_id)
    assets: dict[str, bytes] = {}
    for _ in range(MAX_ATTEMPTS):
        if latest is None:
            return ServerCanvas(FolderCanvas(canvas_id=CanvasId(canvas_id), agent_id=agent_id or ""))
        view = latest
        found = {
            path: _find(client, "canvas.asset.get", canvasId=canvas_id, path=path) for path in view["assets"]
        }
        assets = {path: _decode(asset) for path, asset in found.items() if asset is not None}
        latest = _find(client, "canvas.get", canvasId=canvas_id)
        if latest is not None and latest["revision"] == view["revision"]:
            break
    owner = view["descriptor"]["agentId"]
    if agent_id not in (None, owner):
        wanted = escape_unprintable(str(agent_id))
        raise BadInput(problem=f"Canvas {canvas_id} belongs to agent {owner}, not to {wanted}.")
    artifacts = {name: client.artifact(name) for name in find_offloaded(view)}
    canvas = from_view(view, assets, artifacts)
    return ServerCanvas(canvas, view["descriptor"], view["revision"], view["accepted"])


def _find(client: ApiClient, method: str, **params: Any) -> Any:
    """Return the result of a method, or None if what it names does not exist."""
    try:
        return client.call(method, **params)
    except RequestRefused as problem:
        if problem.name != NOT_FOUND:
            raise
        return None


def fetch_records(client: ApiClient, canvas_id: str, limit: int) -> list[Mapping[str, Any]]:
    """Return the records of the canvas's actions, newest first."""
    records: list[Mapping[str, Any]] = []
    page: Mapping[str, Any] = {"next": None}
    while len(records) < limit and "next" in page:
        page_size = min(RECORDS_PAGE_SIZE, limit - len(records))
        page = client.call("canvas.records", canvasId=canvas_id, before=page["next"], limit=page_size)
        records += page["records"]
    return records


# --- to the server ------------------------------------------------------------------------------------------


def compare(old: FolderCanvas, new: FolderCanvas) -> FolderDifference:
    """Return what must be sent so that `old` becomes `new`. A part that `new` does not have is kept."""
    parts = {wire: (getattr(old, name), getattr(new, name)) for name, (wire, _) in PARTS.items()}
    members = {
        wire: after
        for wire, (before, after) in parts.items()
        if after is not None and not is_identical_json(before, after)
    }
    put = {path: content for path, content in new.assets.items() if old.assets.get(path) != content}
    return FolderDifference(members, put, [path for path in old.assets if path not in new.assets])


def push(
    client: ApiClient, on_server: ServerCanvas, new: FolderCanvas, *, is_accepted: bool = True
) -> SyncResult | None:
    """Change the canvas on the server into `new`. Returns None if nothing differs.

    Raises `RequestRefused`, with REVISION_CONFLICT if the canvas was changed after it was read. Raises
    `BadInput` if this would accept a spec of others that the folder does not have.
    """
    has_effects = not {"actions", "toolPolicy"}.isdisjoint(on_server.canvas.spec or {})
    if is_accepted and has_effects and new.spec is None and not on_server.is_accepted:
        raise BadInput(
            problem=f"{SPEC}: the folder has none, so --accept would accept the spec of the canvas unread. "
            "Use `easel canvas export`, or accept the canvas on its page."
        )
    difference, is_new = compare(on_server.canvas, new), on_server.revision == 0
    if not difference.files and not is_new:
        return None
    params = {
        "canvasId": new.canvas_id,
        "agentId": new.agent_id,
        "expectedRevision": on_server.revision,
        **difference.members,
        **({} if is_accepted else {"accepted": False}),
    }

    def upsert(**assets: Any) -> Any:
        try:
            return client.call("canvas.upsert", **params, **assets)
        except RequestRefused as problem:
            raise _with_file(problem, difference) from None

    if not difference.put and not difference.removed:
        answer = upsert()
    else:
        try:
            answer = upsert(assets={path: _encode(content) for path, content in new.assets.items()})
        except RequestRefused as problem:
            if BODY_LIMIT not in problem.message:
                raise
            answer = upsert()  # checks the revision and the spec before an asset is changed
            answer["revision"] = _push_assets(client, new.canvas_id, difference)
    return SyncResult(answer["revision"], difference, is_new, answer.get("warnings", []))


def _push_assets(client: ApiClient, canvas_id: str, difference: FolderDifference) -> int:
    """Send the assets one by one and return the revision after it."""
    path, revision = "", 0
    try:
        # A path that changed its case only, or became a folder, must be deleted first.
        for path in difference.removed:
            revision = client.call("canvas.asset.delete", canvasId=canvas_id, path=path)["revision"]
        for path, content in difference.put.items():
            encoded = _encode(content)
            body = {"text": encoded} if isinstance(encoded, str) else encoded
            revision = client.call("canvas.asset.put", canvasId=canvas_id, path=path, **body)["revision"]
    except (RequestRefused, ServerUnreachable) as problem:
        text = f"{path}: {problem} The canvas was changed in part; repeat the command to complete it."
        if isinstance(problem, RequestRefused):
            raise RequestRefused(problem.name, text) from None
        raise ServerUnreachable(text) from None
    return revision


def _decode(asset: Mapping[str, str]) -> bytes:
    return asset["text"].encode() if "text" in asset else base64.b64decode(asset["base64"])


def _encode(content: bytes) -> str | dict[str, str]:
    """Return text as it is, other content as base64."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _with_file(problem: RequestRefused, difference: FolderDifference) -> RequestRefused:
    """Return the server's error with the file that it is about, whose name the server does not know."""
    member = problem.message.partition(" ")[0]
    if problem.name == CONFLICT:
        return RequestRefused(CONFLICT, "Others changed the canvas in the meantime; repeat the command.")
    if any(path in problem.message for path in difference.put):
        return problem
    if member in difference.members:
        file = _FILE_OF_MEMBER[member]
    else:
        file = SPEC if "spec" in difference.members else name_files(difference.files)
    return RequestRefused(problem.name, f"{file}: {problem.message}")
