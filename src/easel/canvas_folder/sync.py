"""Carrying a canvas between a server and a folder: what there is, what differs, and the calls that make it the same.

Owns that nothing is half carried. All that changed goes in one call where one call can say it: then it is there whole or not at
all. Where it cannot (more than one request holds, or the server has assets that the folder does not speak of) it goes in steps, and
when one is refused those before it are taken back.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from easel.canvas_folder.api_client import Refused, Server, ServerUnreachable
from easel.core.canvas.assets import ENTRY, check_together
from easel.core.canvas.folder import SPEC, STATE, FolderCanvas, from_view, heavy_in, is_same, plain
from easel.errors import BadInput

MAX_ATTEMPTS = 3  # at reading a canvas at one revision, while people work on it
RECORDS_AT_ONCE = 200
UPSERT = "canvas.upsert"
TOO_LARGE, NOT_FOUND, CONFLICT = "TOO_LARGE", "NOT_FOUND", "REVISION_CONFLICT"


@dataclass(frozen=True, slots=True)
class Held:
    """A canvas as a server has it."""

    canvas: FolderCanvas
    descriptor: Mapping[str, Any]

    @property
    def revision(self) -> int:
        return self.descriptor["revision"]


@dataclass(frozen=True, slots=True)
class Step:
    method: str
    params: Mapping[str, Any]
    about: Sequence[str]  # the files that it carries
    undo: "tuple[str, Mapping[str, Any]] | None" = None


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What was done: by the calls' own answer the revision, and warnings where the server has some."""

    revision: int
    sent: Sequence[str]
    removed: Sequence[str]
    is_new: bool = False
    warnings: Sequence[str] = ()
    calls: int = 0  # that changed it


# --- from the server ----------------------------------------------------------------------------------------------------


def held(server: Server, canvas_id: str) -> Held | None:
    """The whole canvas, None if there is none. Its assets come one by one, so it is read again if it has changed meanwhile.

    On a canvas that changes all the time the last reading counts: what changes so fast is its state, which came in one piece.
    """
    view, assets = _look(server, canvas_id), dict[str, bytes]()
    for _ in range(MAX_ATTEMPTS):
        if view is None:
            return None
        try:
            assets = {path: _asset(server, canvas_id, path) for path in view["assets"]}
        except Refused as problem:
            if problem.name != NOT_FOUND:
                raise
        before, view = view["revision"], _look(server, canvas_id)
        if view is not None and view["revision"] == before:
            break
    if view is None:
        return None
    if assets.keys() != set(view["assets"]):
        raise ServerUnreachable(
            f"The assets of {plain(canvas_id)} are being changed all the time; try again in a moment."
        )
    fetched = {name: server.artifact(name) for name in heavy_in(view)}
    return Held(from_view(view, {path: assets[path] for path in sorted(assets)}, fetched), view["descriptor"])


def changed_there(server: Server, canvas_id: str, assets: Mapping[str, bytes]) -> list[str]:
    """Those of these assets that are others on the server, or not there any more."""
    found: list[str] = []
    for path, content in assets.items():
        try:
            is_other = _asset(server, canvas_id, path) != content
        except Refused as problem:
            if problem.name != NOT_FOUND:
                raise
            is_other = True
        found += [path] if is_other else []
    return found


def _look(server: Server, canvas_id: str) -> Any:
    try:
        return server.call("canvas.get", canvasId=canvas_id)
    except Refused as problem:
        if problem.name == NOT_FOUND:
            return None
        raise


def _asset(server: Server, canvas_id: str, path: str) -> bytes:
    found = server.call("canvas.asset.get", canvasId=canvas_id, path=path)
    return found["text"].encode() if "text" in found else base64.b64decode(found["base64"])


def records(server: Server, canvas_id: str, most: int) -> list[Mapping[str, Any]]:
    """The newest records of its actions, newest first."""
    found: list[Mapping[str, Any]] = []
    before = None
    while len(found) < most:
        page = server.call(
            "canvas.records", canvasId=canvas_id, before=before, limit=min(RECORDS_AT_ONCE, most - len(found))
        )
        found += page["records"]
        before = page.get("next")
        if before is None:
            break
    return found


# --- to the server ------------------------------------------------------------------------------------------------------


def steps(
    old: FolderCanvas | None,
    new: FolderCanvas,
    *,
    most_bytes: int,
    others: Sequence[str] = (),
    is_accepted: bool = True,
    revision: int | None = None,
) -> list[Step]:
    """What makes `old`, as the server has it, into `new`. `others` are assets of the server's that neither speaks of; they stay.

    What is not accepted is so from the first call on, and its buttons run nothing without asking. A call that says all assets at once, and
    so replaces those too that are not new, is for this `revision` alone.
    """
    planned = _steps(old, new, most_bytes=most_bytes, others=others)
    if revision is not None:
        planned = [
            replace(step, params={**step.params, "expectedRevision": revision}) if is_all(step) else step
            for step in planned
        ]
    if is_accepted or not planned:
        return planned
    first = [] if planned[0].method == UPSERT else [_upsert(new, {}, [])]
    return [
        replace(step, params={**step.params, "accepted": False}) if step.method == UPSERT else step
        for step in (*first, *planned)
    ]


def is_all(step: Step) -> bool:
    return step.method == UPSERT and "assets" in step.params


def _steps(
    old: FolderCanvas | None, new: FolderCanvas, *, most_bytes: int, others: Sequence[str]
) -> list[Step]:
    told = _told(old, new)
    there = _assets(old)
    put = {path: content for path, content in new.assets.items() if there.get(path) != content}
    gone = [path for path in there if path not in new.assets]
    if not told and len(put) + len(gone) <= 1:
        return [*_puts(old, new, put), *_deletes(old, new, gone)]
    files = [*_files(told), *put, *gone]
    if not put and not gone:
        return [_upsert(new, told, files)]
    if not others:
        at_once = _upsert(
            new, {**told, "assets": {path: _whole(content) for path, content in new.assets.items()}}, files
        )
        if len(msgspec.json.encode({"method": at_once.method, "params": at_once.params})) <= most_bytes:
            return [at_once]
    first: list[Step] = []
    last = [_upsert(new, told, _files(told))] if told else []
    if old is None:  # there has to be a canvas before it can have assets
        first, last = [_upsert(new, told, _files(told), ("canvas.delete", {"canvasId": new.canvas_id}))], []
    puts, deletes = _puts(old, new, put), _deletes(old, new, gone)
    if not _can_lie_together(
        [*there, *new.assets, *others]
    ):  # a name that changed its case only, or became a folder
        return [*first, *deletes, *puts, *last]
    return [*first, *puts, *last, *deletes]


def _told(old: FolderCanvas | None, new: FolderCanvas) -> dict[str, Any]:
    """The members of an upsert that say what is new."""
    if old is None:
        key = new.owner_session_key if new.owner_session_key != f"agent:{new.agent_id}:main" else None
        told = {
            "agentId": new.agent_id,
            "title": new.title,
            "ownerSessionKey": key,
            "spec": new.spec,
            "state": new.state,
        }
        return {name: value for name, value in told.items() if value is not None}
    pairs = {
        "title": (old.title, new.title),
        "ownerSessionKey": (old.owner_session_key, new.owner_session_key),
        "spec": (old.spec, new.spec),
        "state": (old.state, new.state),
    }
    return {
        name: after
        for name, (before, after) in pairs.items()
        if after is not None and not is_same(before, after)
    }


def _files(told: Mapping[str, Any]) -> list[str]:
    names = {"title": "descriptor.json", "ownerSessionKey": "descriptor.json", "spec": SPEC, "state": STATE}
    return list(dict.fromkeys(names[name] for name in told if name in names))


def _upsert(
    new: FolderCanvas,
    told: Mapping[str, Any],
    files: Sequence[str],
    undo: tuple[str, Mapping[str, Any]] | None = None,
) -> Step:
    return Step(UPSERT, {"canvasId": new.canvas_id, **told}, files, undo)


def _puts(old: FolderCanvas | None, new: FolderCanvas, put: Mapping[str, bytes]) -> list[Step]:
    """The page itself last, when what it shows is there."""
    canvas_id, there = new.canvas_id, _assets(old)
    found: list[Step] = []
    for path in sorted(put, key=lambda path: (path == ENTRY, path)):
        undo = (
            _put(canvas_id, path, there[path])
            if path in there
            else ("canvas.asset.delete", {"canvasId": canvas_id, "path": path})
        )
        method, params = _put(canvas_id, path, put[path])
        found.append(Step(method, params, [path], undo))
    return found


def _put(canvas_id: str, path: str, content: bytes) -> tuple[str, Mapping[str, Any]]:
    whole = _whole(content)
    said = {"text": whole} if isinstance(whole, str) else whole
    return "canvas.asset.put", {"canvasId": canvas_id, "path": path, **said}


def _deletes(old: FolderCanvas | None, new: FolderCanvas, gone: Iterable[str]) -> list[Step]:
    name, there = new.canvas_id, _assets(old)
    return [
        Step("canvas.asset.delete", {"canvasId": name, "path": path}, [path], _put(name, path, there[path]))
        for path in gone
    ]


def _assets(canvas: FolderCanvas | None) -> Mapping[str, bytes]:
    return dict[str, bytes]() if canvas is None else canvas.assets


def _can_lie_together(paths: Iterable[str]) -> bool:
    try:
        check_together(dict.fromkeys(paths))
    except BadInput:
        return False
    return True


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _whole(content: bytes) -> str | Mapping[str, str]:
    """As text, if it is."""
    text = _text(content)
    return {"base64": base64.b64encode(content).decode()} if text is None else text


def carry(
    server: Server,
    old: FolderCanvas | None,
    new: FolderCanvas,
    *,
    most_bytes: int,
    others: Sequence[str] = (),
    is_accepted: bool = True,
    revision: int | None = None,
) -> SyncResult | None:
    """All of it or nothing; None if there is nothing to do."""
    planned = steps(
        old, new, most_bytes=most_bytes, others=others, is_accepted=is_accepted, revision=revision
    )
    try:
        return _done(server, old, new, planned)
    except Refused as problem:
        smaller = steps(old, new, most_bytes=0, others=others, is_accepted=is_accepted)
        if problem.name != TOO_LARGE or len(smaller) <= len(planned):
            raise
        return _done(server, old, new, smaller)  # this server's requests hold less than ours would


def _done(
    server: Server, old: FolderCanvas | None, new: FolderCanvas, planned: Sequence[Step]
) -> SyncResult | None:
    done: list[Step] = []
    answer: Any = {}
    warnings: list[str] = []
    for step in planned:
        try:
            answer = server.call(step.method, **step.params)
        except Refused as problem:
            if step.method == "canvas.asset.delete" and problem.name == NOT_FOUND:
                continue  # gone already
            raise Refused(problem.name, _told_of(step, problem) + _taken_back(server, done)) from None
        except ServerUnreachable as problem:
            if not done:
                raise
            raise ServerUnreachable(
                f"{problem} Some of {new.canvas_id} is there already; do the same again when the server is back."
            ) from None
        warnings += answer.get("warnings", [])
        done.append(step)
    if not done:
        return None
    gone = [path for path in _assets(old) if path not in new.assets]
    about = dict.fromkeys(path for step in done for path in step.about if path not in gone)
    return SyncResult(answer["revision"], list(about), gone, old is None, warnings, len(done))


def accept(server: Server, canvas_id: str) -> tuple[int, int]:
    """Whoever imports it stands for all of it, as it lies there now; its revision before and after."""
    view = server.call("canvas.get", canvasId=canvas_id)
    before = view["revision"]
    if not view["accepted"]:
        view = server.call("canvas.accept", canvasId=canvas_id, revision=before)
    return before, view["revision"]


def _taken_back(server: Server, done: Sequence[Step]) -> str:
    """What is to be said of that: nothing, if it went well."""
    try:
        for step in reversed(done):
            if step.undo is not None:
                method, params = step.undo
                server.call(method, **params)
    except (Refused, ServerUnreachable) as problem:
        return f" What had been sent before could not be taken back ({problem})."
    return ""


def _told_of(step: Step, problem: Refused) -> str:
    """With the file that it is about, where the server cannot know of files."""
    about = [path for path in step.about if path != "descriptor.json"] or list(step.about)
    if not about or problem.message.startswith(about[0]):
        return problem.message
    return (
        f"{', '.join(plain(path) for path in about[:3])}{' …' if len(about) > 3 else ''}: {problem.message}"
    )


def checked_agent(held_there: Held, agent_id: str) -> None:
    """A canvas stays its agent's."""
    if held_there.canvas.agent_id != agent_id:
        raise BadInput(
            problem=f"Canvas {held_there.canvas.canvas_id} is agent {held_there.canvas.agent_id}'s, and not {plain(agent_id)}'s."
        )
