"""Synchronise a canvas between a server and a folder: fetch it, plan the calls that change it, and make them.

Owns that a canvas is changed completely or not at all. All changes are sent in one call if possible.
Otherwise (the request would be too large, or the server has assets that the folder does not define) they are
sent in steps, and when a step is refused, the steps before it are undone.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from easel.canvas_folder.api_client import ApiClient, RequestRefused, ServerUnreachable
from easel.core.canvas.assets import ENTRY, check_path_conflicts
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
class SyncStep:
    """One call, the files that it sends, and the call that undoes it."""

    method: str
    params: Mapping[str, Any]
    files: Sequence[str]
    undo: "tuple[str, Mapping[str, Any]] | None" = None


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The changes that were made, with the revision and the warnings of the server."""

    revision: int
    sent: Sequence[str]
    removed: Sequence[str]
    is_new: bool = False
    warnings: Sequence[str] = ()
    call_count: int = 0

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


def changed_on_server(client: ApiClient, canvas_id: str, assets: Mapping[str, bytes]) -> list[str]:
    """Return the paths of the given assets that differ on the server or were deleted there."""
    changed: list[str] = []
    for path, content in assets.items():
        try:
            differs = _get_asset(client, canvas_id, path) != content
        except RequestRefused as problem:
            if problem.name != NOT_FOUND:
                raise
            differs = True
        changed += [path] if differs else []
    return changed


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


def plan_steps(
    old: FolderCanvas | None,
    new: FolderCanvas,
    *,
    max_bytes: int,
    others: Sequence[str] = (),
    is_accepted: bool = True,
    revision: int | None = None,
) -> list[SyncStep]:
    """Return the calls that change `old`, the canvas on the server, into `new`.

    `others` are assets of the server that neither canvas defines; they are kept. With `is_accepted` false the
    first call already removes the acceptance, so that no new action runs without confirmation. A call that
    replaces all assets expects this `revision`.
    """
    steps = _plan(old, new, max_bytes=max_bytes, others=others)
    if revision is not None:
        steps = [
            replace(step, params={**step.params, "expectedRevision": revision})
            if replaces_all_assets(step)
            else step
            for step in steps
        ]
    if is_accepted or not steps:
        return steps
    first = [] if steps[0].method == UPSERT else [_upsert(new, {}, [])]
    return [
        replace(step, params={**step.params, "accepted": False}) if step.method == UPSERT else step
        for step in (*first, *steps)
    ]


def replaces_all_assets(step: SyncStep) -> bool:
    return step.method == UPSERT and "assets" in step.params


def _plan(
    old: FolderCanvas | None, new: FolderCanvas, *, max_bytes: int, others: Sequence[str]
) -> list[SyncStep]:
    members = _changed_members(old, new)
    old_assets = _assets(old)
    put = {path: content for path, content in new.assets.items() if old_assets.get(path) != content}
    deleted = [path for path in old_assets if path not in new.assets]
    if not members and len(put) + len(deleted) <= 1:
        return [*_put_steps(old, new, put), *_delete_steps(old, new, deleted)]
    files = [*_files(members), *put, *deleted]
    if not put and not deleted:
        return [_upsert(new, members, files)]
    if not others:
        assets = {path: _encode(content) for path, content in new.assets.items()}
        step = _upsert(new, {**members, "assets": assets}, files)
        if len(msgspec.json.encode({"method": step.method, "params": step.params})) <= max_bytes:
            return [step]
    first: list[SyncStep] = []
    last = [_upsert(new, members, _files(members))] if members else []
    if old is None:  # the canvas must exist before it can have assets
        undo = ("canvas.delete", {"canvasId": new.canvas_id})
        first, last = [_upsert(new, members, _files(members), undo)], []
    puts, deletes = _put_steps(old, new, put), _delete_steps(old, new, deleted)
    # A path that changed its case only, or became a folder, must be deleted first.
    if _has_conflicts([*old_assets, *new.assets, *others]):
        return [*first, *deletes, *puts, *last]
    return [*first, *puts, *last, *deletes]


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


def _upsert(
    new: FolderCanvas,
    members: Mapping[str, Any],
    files: Sequence[str],
    undo: tuple[str, Mapping[str, Any]] | None = None,
) -> SyncStep:
    return SyncStep(UPSERT, {"canvasId": new.canvas_id, **members}, files, undo)


def _put_steps(old: FolderCanvas | None, new: FolderCanvas, put: Mapping[str, bytes]) -> list[SyncStep]:
    """Return the steps that put assets, the page last, so that all assets it refers to exist."""
    canvas_id, old_assets = new.canvas_id, _assets(old)
    steps: list[SyncStep] = []
    for path in sorted(put, key=lambda path: (path == ENTRY, path)):
        undo = (
            _put(canvas_id, path, old_assets[path])
            if path in old_assets
            else (DELETE_ASSET, {"canvasId": canvas_id, "path": path})
        )
        method, params = _put(canvas_id, path, put[path])
        steps.append(SyncStep(method, params, [path], undo))
    return steps


def _put(canvas_id: str, path: str, content: bytes) -> tuple[str, Mapping[str, Any]]:
    encoded = _encode(content)
    body = {"text": encoded} if isinstance(encoded, str) else encoded
    return PUT_ASSET, {"canvasId": canvas_id, "path": path, **body}


def _delete_steps(old: FolderCanvas | None, new: FolderCanvas, paths: Iterable[str]) -> list[SyncStep]:
    canvas_id, old_assets = new.canvas_id, _assets(old)
    return [
        SyncStep(
            DELETE_ASSET,
            {"canvasId": canvas_id, "path": path},
            [path],
            _put(canvas_id, path, old_assets[path]),
        )
        for path in paths
    ]


def _assets(canvas: FolderCanvas | None) -> Mapping[str, bytes]:
    return dict[str, bytes]() if canvas is None else canvas.assets


def _has_conflicts(paths: Iterable[str]) -> bool:
    try:
        check_path_conflicts(dict.fromkeys(paths))
    except BadInput:
        return True
    return False


def _encode(content: bytes) -> str | Mapping[str, str]:
    """Return text as it is, other content as base64."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def push(
    client: ApiClient,
    old: FolderCanvas | None,
    new: FolderCanvas,
    *,
    max_bytes: int,
    others: Sequence[str] = (),
    is_accepted: bool = True,
    revision: int | None = None,
) -> SyncResult | None:
    """Change the canvas on the server completely or not at all. Returns None if nothing differs."""
    steps = plan_steps(
        old, new, max_bytes=max_bytes, others=others, is_accepted=is_accepted, revision=revision
    )
    try:
        return _run_steps(client, old, new, steps)
    except RequestRefused as problem:
        # The limit of this server may be lower than ours: send the files one by one.
        smaller = plan_steps(old, new, max_bytes=0, others=others, is_accepted=is_accepted)
        if problem.name != TOO_LARGE or len(smaller) <= len(steps):
            raise
        return _run_steps(client, old, new, smaller)


def _run_steps(
    client: ApiClient, old: FolderCanvas | None, new: FolderCanvas, steps: Sequence[SyncStep]
) -> SyncResult | None:
    done: list[SyncStep] = []
    answer: Any = {}
    warnings: list[str] = []
    for step in steps:
        try:
            answer = client.call(step.method, **step.params)
        except RequestRefused as problem:
            if step.method == DELETE_ASSET and problem.name == NOT_FOUND:
                continue  # the asset was deleted already
            raise RequestRefused(problem.name, _with_files(step, problem) + _undo(client, done)) from None
        except ServerUnreachable as problem:
            if not done:
                raise
            raise ServerUnreachable(
                f"{problem} {new.canvas_id} was changed in part; "
                "repeat the command when the server is reachable."
            ) from None
        warnings += answer.get("warnings", [])
        done.append(step)
    if not done:
        return None
    removed = [path for path in _assets(old) if path not in new.assets]
    sent = dict.fromkeys(path for step in done for path in step.files if path not in removed)
    return SyncResult(answer["revision"], list(sent), removed, old is None, warnings, len(done))


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


def _undo(client: ApiClient, done: Sequence[SyncStep]) -> str:
    """Undo steps in reverse order. Returns a sentence for the error message, empty if it succeeded."""
    try:
        for step in reversed(done):
            if step.undo is not None:
                method, params = step.undo
                client.call(method, **params)
    except (RequestRefused, ServerUnreachable) as problem:
        return f" The changes before it could not be undone ({problem})."
    return ""


def _with_files(step: SyncStep, problem: RequestRefused) -> str:
    """Return the server's message after the files of the step, which the server does not know."""
    files = [path for path in step.files if path != DESCRIPTOR] or list(step.files)
    if not files or problem.message.startswith(files[0]):
        return problem.message
    return f"{_names(files)}: {problem.message}"
