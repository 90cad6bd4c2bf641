"""Synchronise a canvas between a server and a folder: fetch it, compare the two, and send the difference.

Owns the calls. A canvas that fits into one request is one `canvas.upsert` that expects the revision that was
read: it is changed completely or not at all. A larger one is sent in steps: the assets one by one, then spec
and state. An interrupted command is completed by repeating it.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from easel.canvas_folder.api_client import ApiClient, RequestRefused, ServerUnreachable
from easel.core.canvas.assets import ENTRY
from easel.core.canvas.folder import (
    DESCRIPTOR,
    SPEC,
    STATE,
    FolderCanvas,
    escape_unprintable,
    find_offloaded,
    from_view,
    is_identical_json,
)
from easel.errors import BadInput

MAX_ATTEMPTS = 3  # to read a canvas at one revision while it is being changed
RECORDS_PAGE_SIZE = 200
MAX_NAMED_FILES = 4  # in a message
UPSERT, PUT_ASSET, DELETE_ASSET = "canvas.upsert", "canvas.asset.put", "canvas.asset.delete"
TOO_LARGE, NOT_FOUND, CONFLICT = "TOO_LARGE", "NOT_FOUND", "REVISION_CONFLICT"
_FILE_OF_MEMBER = {"title": DESCRIPTOR, "ownerSessionKey": DESCRIPTOR, "spec": SPEC, "state": STATE}


@dataclass(frozen=True, slots=True)
class ServerCanvas:
    """A canvas as the server has it."""

    canvas: FolderCanvas
    descriptor: Mapping[str, Any]

    @property
    def revision(self) -> int:
        return self.descriptor["revision"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between a canvas of the server and that of a folder.

    `members` are those of `canvas.upsert`, without assets; `removed` are paths of assets.
    """

    members: Mapping[str, Any] = field(default_factory=dict[str, Any])
    put: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    removed: Sequence[str] = ()

    @property
    def sent(self) -> list[str]:
        """The files that are sent."""
        return [*_files(self.members), *sorted(self.put)]

    @property
    def is_one_asset(self) -> bool:
        return not self.members and len(self.put) + len(self.removed) == 1

    def __bool__(self) -> bool:
        return bool(self.members or self.put or self.removed)


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The changes that were made, with the revision and the warnings of the server."""

    revision: int
    sent: Sequence[str]
    removed: Sequence[str]
    is_new: bool = False
    warnings: Sequence[str] = ()

    def describe(self) -> str:
        """Return the changes as one line for the author, without warnings."""
        if self.is_new:
            return f"created from {_names(self.sent) or 'no files'}; revision {self.revision}"
        done = [
            f"{_names(paths)} {verb}"
            for paths, verb in ((self.sent, "saved"), (self.removed, "removed"))
            if paths
        ]
        return f"{', '.join(done)}; revision {self.revision}"


def _names(paths: Sequence[str]) -> str:
    names = ", ".join(escape_unprintable(path) for path in paths[:MAX_NAMED_FILES])
    return names + (f" and {len(paths) - MAX_NAMED_FILES} more" if len(paths) > MAX_NAMED_FILES else "")


# --- from the server ----------------------------------------------------------------------------------------


def fetch(client: ApiClient, canvas_id: str) -> ServerCanvas | None:
    """Return the canvas with its assets, or None if it does not exist.

    Assets are fetched one by one, and again if the canvas has changed in between. If the canvas changes all
    the time, the last attempt is used: such frequent changes are changes of the state, which one response
    contains completely.
    """
    view, assets = _get_view(client, canvas_id), dict[str, bytes]()
    for _ in range(MAX_ATTEMPTS):
        if view is None:
            return None
        try:
            assets = {path: _get_asset(client, canvas_id, path) for path in view["assets"]}
        except RequestRefused as problem:
            if problem.name != NOT_FOUND:
                raise
        before, view = view["revision"], _get_view(client, canvas_id)
        if view is not None and view["revision"] == before:
            break
    if view is None:
        return None
    if assets.keys() != set(view["assets"]):
        raise ServerUnreachable(
            f"The assets of {escape_unprintable(canvas_id)} are being changed all the time; "
            "try again in a moment."
        )
    artifacts = {name: client.artifact(name) for name in find_offloaded(view)}
    canvas = from_view(view, {path: assets[path] for path in sorted(assets)}, artifacts)
    return ServerCanvas(canvas, view["descriptor"])


def exists(client: ApiClient, canvas_id: str) -> bool:
    return _get_view(client, canvas_id) is not None


def _get_view(client: ApiClient, canvas_id: str) -> Any:
    try:
        return client.call("canvas.get", canvasId=canvas_id)
    except RequestRefused as problem:
        if problem.name == NOT_FOUND:
            return None
        raise


def _get_asset(client: ApiClient, canvas_id: str, path: str) -> bytes:
    asset = client.call("canvas.asset.get", canvasId=canvas_id, path=path)
    return asset["text"].encode() if "text" in asset else base64.b64decode(asset["base64"])


def fetch_records(client: ApiClient, canvas_id: str, limit: int) -> list[Mapping[str, Any]]:
    """Return the records of the canvas's actions, newest first."""
    records: list[Mapping[str, Any]] = []
    before = None
    while len(records) < limit:
        page = client.call(
            "canvas.records",
            canvasId=canvas_id,
            before=before,
            limit=min(RECORDS_PAGE_SIZE, limit - len(records)),
        )
        records += page["records"]
        before = page.get("next")
        if before is None:
            break
    return records


# --- to the server ------------------------------------------------------------------------------------------


def compare(old: FolderCanvas | None, new: FolderCanvas) -> Difference:
    """Return what must be sent so that `old`, the canvas on the server, becomes `new`."""
    old_assets = dict[str, bytes]() if old is None else old.assets
    # The page is put last, so that all assets it refers to exist.
    paths = sorted(new.assets, key=lambda path: (path == ENTRY, path))
    return Difference(
        _changed_members(old, new),
        {path: new.assets[path] for path in paths if old_assets.get(path) != new.assets[path]},
        [path for path in old_assets if path not in new.assets],
    )


def push(
    client: ApiClient,
    on_server: ServerCanvas | None,
    new: FolderCanvas,
    *,
    max_bytes: int,
    is_accepted: bool = True,
) -> SyncResult | None:
    """Change the canvas on the server into `new`. Returns None if nothing differs.

    Raises `RequestRefused`, with REVISION_CONFLICT if a user changed the canvas after it was read.
    """
    difference = compare(on_server and on_server.canvas, new)
    if not difference:
        return None
    params = {"canvasId": new.canvas_id, **difference.members}
    if difference.put or difference.removed:
        params["assets"] = {path: _encode(content) for path, content in new.assets.items()}
    if on_server is not None:
        params["expectedRevision"] = on_server.revision
    if not is_accepted:
        params["accepted"] = False
    if len(msgspec.json.encode({"method": UPSERT, "params": params})) <= max_bytes:
        try:
            answer = client.call(UPSERT, **params)
        except RequestRefused as problem:
            if problem.name != TOO_LARGE:  # the limit of this server may be lower than ours
                raise _with_files(problem, [*difference.sent, *difference.removed]) from None
        else:
            return _result(answer, difference, is_new=on_server is None)
    return _push_in_steps(client, new, difference, is_new=on_server is None, is_accepted=is_accepted)


def push_file(
    client: ApiClient, canvas: FolderCanvas, difference: Difference, *, is_accepted: bool
) -> SyncResult:
    """Send the difference of one file of a canvas that exists."""
    return _push_in_steps(client, canvas, difference, is_new=False, is_accepted=is_accepted)


def create_empty(client: ApiClient, canvas: FolderCanvas, *, is_accepted: bool) -> SyncResult:
    """Create a canvas without the content of its files."""
    params = {"canvasId": canvas.canvas_id, "agentId": canvas.agent_id}
    answer = client.call(UPSERT, **params, **({} if is_accepted else {"accepted": False}))
    return _result(answer, Difference(), is_new=True)


def initial_state(canvas: FolderCanvas) -> Any:
    """Return the state that a new canvas must have: that of the folder, else the one of its spec. CV-17"""
    return canvas.state if canvas.state is not None else (canvas.spec or {}).get("state")


def _push_in_steps(
    client: ApiClient, new: FolderCanvas, difference: Difference, *, is_new: bool, is_accepted: bool
) -> SyncResult:
    """Send assets one by one, then spec and state."""
    answer: Any = {}
    warnings: list[str] = []
    members = dict(difference.members)
    is_changed = False

    def call(method: str, files: Sequence[str], **params: Any) -> None:
        nonlocal answer, is_changed
        try:
            answer = client.call(method, canvasId=new.canvas_id, **params)
        except RequestRefused as problem:
            if method == DELETE_ASSET and problem.name == NOT_FOUND:
                return  # the asset was deleted already
            raise _with_files(problem, files, is_changed=is_changed) from None
        except ServerUnreachable as problem:
            raise ServerUnreachable(f"{problem}{_CHANGED_IN_PART if is_changed else ''}") from None
        warnings.extend(answer.get("warnings", []))
        is_changed = True

    declined = {} if is_accepted else {"accepted": False}
    if is_new and (state := initial_state(new)) is not None:
        members["state"] = state
    if is_new:  # the canvas must exist before it can have assets; the spec follows them
        call(
            UPSERT, _files(members), **{name: members[name] for name in members if name != "spec"}, **declined
        )
    elif declined and (difference.put or difference.removed):  # before the new page is shown
        call(UPSERT, (), **declined)
    # A path that changed its case only, or became a folder, must be deleted first.
    for path in difference.removed:
        call(DELETE_ASSET, [path], path=path)
    for path, content in difference.put.items():
        encoded = _encode(content)
        call(PUT_ASSET, [path], path=path, **({"text": encoded} if isinstance(encoded, str) else encoded))
    if not is_new or "spec" in members:
        last = {name: value for name, value in members.items() if not is_new or name in ("spec", "state")}
        if last:
            call(UPSERT, _files(last), **last, **declined)
    return _result({**answer, "warnings": warnings}, difference, is_new=is_new)


_CHANGED_IN_PART = " The canvas was changed in part; repeat the command to complete it."


def _result(answer: Mapping[str, Any], difference: Difference, *, is_new: bool) -> SyncResult:
    return SyncResult(
        answer.get("revision", 0), difference.sent, difference.removed, is_new, answer.get("warnings", [])
    )


def _changed_members(old: FolderCanvas | None, new: FolderCanvas) -> dict[str, Any]:
    """Return the members of an upsert that differ."""
    if old is None:
        is_default_session = new.owner_session_key == f"agent:{new.agent_id}:main"
        members = {
            "agentId": new.agent_id,
            "title": new.title,
            "ownerSessionKey": None if is_default_session else new.owner_session_key,
            "spec": new.spec,
            "state": new.state,
        }
        return {name: value for name, value in members.items() if value is not None}
    pairs = {
        "title": (old.title, new.title),
        "ownerSessionKey": (old.owner_session_key, new.owner_session_key),
        "spec": (old.spec, new.spec),
        "state": (old.state, new.state),
    }
    return {
        name: after
        for name, (before, after) in pairs.items()
        if after is not None and not is_identical_json(before, after)
    }


def _files(members: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(_FILE_OF_MEMBER[name] for name in members if name in _FILE_OF_MEMBER))


def _encode(content: bytes) -> str | Mapping[str, str]:
    """Return text as it is, other content as base64."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def accept(client: ApiClient, canvas_id: str) -> tuple[int, int]:
    """Accept the canvas as it is now. Returns its revision before and after."""
    view = client.call("canvas.get", canvasId=canvas_id)
    before = view["revision"]
    if not view["accepted"]:
        view = client.call("canvas.accept", canvasId=canvas_id, revision=before)
    return before, view["revision"]


def check_agent(on_server: ServerCanvas, agent_id: str) -> None:
    """Raise `BadInput` if the canvas belongs to another agent."""
    canvas = on_server.canvas
    if canvas.agent_id != agent_id:
        raise BadInput(
            problem=f"Canvas {canvas.canvas_id} belongs to agent {canvas.agent_id}, "
            f"not to {escape_unprintable(agent_id)}."
        )


def _with_files(problem: RequestRefused, files: Sequence[str], *, is_changed: bool = False) -> RequestRefused:
    """Return the server's error after the names of the files, which the server does not know."""
    named = [path for path in files if path != DESCRIPTOR] or list(files)
    is_named = not named or problem.message.startswith(named[0])
    message = problem.message if is_named else f"{_names(named)}: {problem.message}"
    return RequestRefused(problem.name, message + (_CHANGED_IN_PART if is_changed else ""))
