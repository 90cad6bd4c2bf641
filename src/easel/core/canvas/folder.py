"""A canvas as a folder of files: what lies where, and what each file says. CV-12, RS-11

    agents/{agentId}/canvases/{canvasId}/
      descriptor.json   spec.json   state/latest.json
      assets/index.html   assets/index.js   assets/…
      events/{timestamp}-{eventId}.json

Owns the layout, and the way from a canvas to the bytes of its files and back. Knows no disk and no server. What a folder does not
hold it does not speak of, but for assets: those that it holds are all there are. Records of actions go out and never come in, since
a record that anybody could write would prove nothing. CV-48
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from easel.core.canvas.assets import FOLDER, check_together, checked_asset_path
from easel.core.canvas.canvas import checked_agent_id, checked_canvas_id, checked_session_key, checked_title
from easel.core.canvas.spec import SpecLimits, check_state_size, checked_spec
from easel.core.stream.payload_limit import markers_in, restored
from easel.core.validation import checked_object, shown
from easel.errors import BadInput, HostError
from easel.ids import ArtifactId, CanvasId, is_made_here

DESCRIPTOR, SPEC, STATE, EVENTS = "descriptor.json", "spec.json", "state/latest.json", "events/"
AGENTS, CANVASES = "agents", "canvases"
MAIN = "main"  # whose a canvas is where nothing says it

# CV-14; where its log stands is no part of a canvas that lies in a folder.
_DESCRIBED = (
    "canvasId",
    "agentId",
    "title",
    "ownerSessionKey",
    "mode",
    "entryAsset",
    "createdAt",
    "updatedAt",
    "revision",
)
# How much is too much depends on the server that it goes to. Here only what no server takes is refused.
_ANY_SIZE = SpecLimits(
    spec_bytes=2**31,
    state_bytes=2**31,
    actions=10_000_000,
    bindings=10_000_000,
    refreshes=10_000_000,
    tools=10_000_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCanvas:
    """A canvas as far as a folder can tell of it. What is None is not spoken of."""

    canvas_id: CanvasId
    agent_id: str
    title: str | None = None
    owner_session_key: str | None = None
    spec: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    assets: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def place(self) -> str:
        return f"{AGENTS}/{self.agent_id}/{CANVASES}/{self.canvas_id}"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one file."""

    path: str
    says: str

    def __str__(self) -> str:
        return f"{plain(self.path)}: {self.says}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What the files say, without those that cannot be understood."""

    canvas: FolderCanvas
    problems: Sequence[Problem]


# --- files to a canvas --------------------------------------------------------------------------------------------------


def identity(
    descriptor: bytes | None,
    *,
    folder: str,
    place: tuple[str, str] | None = None,
    agent_id: str | None = None,
) -> tuple[str, CanvasId]:
    """Whose canvas this is and which: as its place in the layout says, or its descriptor, or else by the folder's own name.

    They must not contradict: a folder that was copied under another name would else replace the canvas that it was copied from.
    """
    says = {} if descriptor is None else parsed(descriptor, DESCRIPTOR)
    canvas_id, agent = says.get("canvasId"), says.get("agentId")
    if place is not None:
        for name, said, lies in (("agentId", agent, place[0]), ("canvasId", canvas_id, place[1])):
            if said not in (None, lies):
                raise BadInput(
                    problem=f"{DESCRIPTOR}: {name} is {shown(said)}, but the folder is that of {shown(lies)}."
                )
        agent, canvas_id = place
    if agent_id is not None and agent not in (None, agent_id):
        raise BadInput(problem=f"This folder is agent {shown(agent)}'s, and not {shown(agent_id)}'s.")
    agent = agent_id or (MAIN if agent is None else agent)
    canvas_id = folder if canvas_id is None else canvas_id
    if not isinstance(agent, str) or not isinstance(canvas_id, str):
        raise BadInput(problem=f"{DESCRIPTOR}: agentId and canvasId are texts.")
    return checked_agent_id(agent), checked_canvas_id(canvas_id)


def read(files: Mapping[str, bytes], agent_id: str, canvas_id: CanvasId) -> Reading:
    """The canvas that these files make, each by its path in the canvas's folder. Others than the layout's are not looked at."""
    reader = _Reader(files)
    descriptor = reader.object_at(DESCRIPTOR) or {}
    for name, is_it in (("agentId", agent_id), ("canvasId", canvas_id)):
        if descriptor.get(name, is_it) != is_it:
            reader.complain(DESCRIPTOR, f"{name} is {shown(descriptor[name])}, but this is {shown(is_it)}.")
            descriptor = {}
    canvas = FolderCanvas(
        canvas_id=canvas_id,
        agent_id=agent_id,
        title=reader.checked(DESCRIPTOR, lambda: _title(descriptor, canvas_id)),
        owner_session_key=reader.checked(
            DESCRIPTOR, lambda: checked_session_key(_text(descriptor, "ownerSessionKey"))
        ),
        spec=reader.spec(),
        state=reader.state(),
        assets=reader.assets(),
    )
    return Reading(canvas, reader.problems)


class _Reader:
    """Reads on after what it cannot read, so that all that is wrong is told at once."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self.problems: list[Problem] = []

    def complain(self, path: str, says: str) -> None:
        self.problems.append(Problem(path, says))

    def checked(self, path: str, check: Any) -> Any:
        try:
            return check()
        except HostError as problem:
            self.complain(path, problem.message)
            return None

    def object_at(self, path: str) -> dict[str, Any] | None:
        content = self._files.get(path)
        if content is None:
            return None
        try:
            return parsed(content, path)
        except BadInput as problem:
            self.complain(path, problem.message.removeprefix(f"{path}: "))
            return None

    def spec(self) -> dict[str, Any] | None:
        found = self.object_at(SPEC)
        return (
            found
            if found is None or self.checked(SPEC, lambda: checked_spec(found, _ANY_SIZE)) is not None
            else None
        )

    def state(self) -> dict[str, Any] | None:
        found = self.object_at(STATE)
        complaints = len(self.problems)
        self.checked(STATE, lambda: check_state_size(found, _ANY_SIZE.state_bytes))
        return found if len(self.problems) == complaints else None

    def assets(self) -> dict[str, bytes]:
        found = {path: content for path, content in sorted(self._files.items()) if path.startswith(FOLDER)}
        good = {
            path: content
            for path, content in found.items()
            if self.checked(path, lambda path=path: checked_asset_path(path))
        }
        self.checked(FOLDER, lambda: check_together(good))
        return good


def _title(descriptor: Mapping[str, Any], canvas_id: CanvasId) -> str | None:
    title = _text(descriptor, "title")
    return None if title is None else checked_title(title, canvas_id)


def _text(descriptor: Mapping[str, Any], name: str) -> str | None:
    value = descriptor.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(problem=f"{name} is text.")
    return value


def parsed(content: bytes, path: str) -> dict[str, Any]:
    """A JSON object, read as the server would read it, with the line where it is broken."""
    try:
        text = content.decode("utf-8-sig")
        json.loads(
            text, object_pairs_hook=_each_once, parse_int=len, parse_float=len
        )  # for its messages; numbers do not matter to it
        value: Any = msgspec.json.decode(text)
    except json.JSONDecodeError as problem:
        where = (
            "it is empty"
            if not content.strip()
            else f"line {problem.lineno}, column {problem.colno}: {problem.msg}"
        )
        raise BadInput(problem=f"{path}: is not JSON ({where}).") from None
    except UnicodeDecodeError:
        raise BadInput(problem=f"{path}: is not JSON (it is not UTF-8).") from None
    except RecursionError:
        raise BadInput(problem=f"{path}: is nested too deeply.") from None
    except msgspec.DecodeError as problem:
        raise BadInput(problem=f"{path}: is not JSON that can be stored ({problem}).") from None
    except BadInput as problem:
        raise BadInput(problem=f"{path}: {problem.message}") from None
    return checked_object(value, path)


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise BadInput(problem=f"has the key {shown(key)} twice in one object.")
        seen.add(key)


# --- a canvas to files --------------------------------------------------------------------------------------------------


def from_view(
    view: Mapping[str, Any], assets: Mapping[str, bytes], fetched: Mapping[ArtifactId, bytes]
) -> FolderCanvas:
    """The canvas that `canvas.get` tells of, made whole again: `fetched` has what `heavy_in` names.

    Its names become names of files here, so they are held to their laws once more, whatever server told them.
    """
    descriptor = view["descriptor"]
    for path in assets:
        checked_asset_path(path)
    check_together(assets)
    return FolderCanvas(
        canvas_id=checked_canvas_id(descriptor["canvasId"]),
        agent_id=checked_agent_id(descriptor["agentId"]),
        title=descriptor["title"],
        owner_session_key=descriptor["ownerSessionKey"],
        spec=restored(view["spec"], fetched),
        state=restored(view["state"], fetched),
        assets=assets,
    )


def heavy_in(view: Mapping[str, Any]) -> frozenset[ArtifactId]:
    """What was moved out of this canvas to artifacts. A folder has no artifacts: it holds the values themselves."""
    return markers_in(view["spec"]) | markers_in(view["state"])


def files_of(
    canvas: FolderCanvas, descriptor: Mapping[str, Any], records: Iterable[Mapping[str, Any]]
) -> dict[str, bytes]:
    """Every file of the canvas's folder."""
    return {
        DESCRIPTOR: pretty({name: descriptor[name] for name in _DESCRIBED if name in descriptor}),
        SPEC: pretty(canvas.spec),
        STATE: pretty(canvas.state),
        **canvas.assets,
        **{record_path(record): pretty(record) for record in records},
    }


def record_path(record: Mapping[str, Any]) -> str:
    """By when it was asked for, which never changes, so that names sort as things happened."""
    asked_at, event_id = record.get("askedAt"), record.get("eventId")
    if not isinstance(asked_at, int) or not isinstance(event_id, str) or not is_made_here(event_id):
        raise BadInput(problem=f"The record {shown(event_id)} has no name that a file could have.")
    return f"{EVENTS}{asked_at}-{event_id}.json"


def pretty(value: Any) -> bytes:
    """As people like to edit it; the same value gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def is_same(one: Any, other: Any) -> bool:
    """As JSON: 1, 1.0 and true are three things, and the order of keys is none."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def plain(text: str) -> str:
    """A name for a terminal, which must not take a part of it for a command."""
    return (
        text
        if text.isprintable()
        else "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
    )
