"""A canvas as a folder of files. CV-12, RS-11

    agents/{agentId}/canvases/{canvasId}/
      descriptor.json   spec.json   state/latest.json
      assets/index.html   assets/index.js   assets/…
      events/{timestamp}-{eventId}.json

Owns the layout, and the conversion between a canvas and the content of its files. Does not know disks or
servers. On import, a missing file leaves its part of the canvas unchanged. Assets are the exception: an asset
without a file is removed. The records of actions (`events/`) are exported but never imported, because they
could have been edited. CV-48
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from easel.core.canvas.assets import FOLDER, check_path_conflicts, require_asset_path
from easel.core.canvas.canvas import parse_title, require_agent_id, require_canvas_id, require_session_key
from easel.core.canvas.spec import UNLIMITED, check_state_size, parse_spec
from easel.core.problems import escape_unprintable, problems_of
from easel.core.stream.payload_limit import markers_in, restore_markers
from easel.core.validation import quote_value, require_object
from easel.errors import BadInput, HostError
from easel.ids import ArtifactId, CanvasId, is_generated_id

DESCRIPTOR, SPEC, STATE, EVENTS = "descriptor.json", "spec.json", "state/latest.json", "events/"
AGENTS, CANVASES = "agents", "canvases"
DEFAULT_AGENT_ID = "main"

# The parts of a canvas beside its assets: the member of `canvas.upsert`, and the file that has it.
PARTS = {
    "title": ("title", DESCRIPTOR),
    "owner_session_key": ("ownerSessionKey", DESCRIPTOR),
    "spec": ("spec", SPEC),
    "state": ("state", STATE),
}
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCanvas:
    """The parts of a canvas that a folder contains. None: the folder has no file for this part."""

    canvas_id: CanvasId
    agent_id: str
    title: str | None = None
    owner_session_key: str | None = None
    spec: Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    assets: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    def with_missing_parts_of(self, other: "FolderCanvas") -> "FolderCanvas":
        """Return this canvas with the parts of another one for those that it does not have."""
        missing = (name for name in PARTS if getattr(self, name) is None)
        return replace(self, **{name: getattr(other, name) for name in missing})

    @property
    def directory(self) -> str:
        """The path of the canvas's folder in the layout."""
        return f"{AGENTS}/{self.agent_id}/{CANVASES}/{self.canvas_id}"


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The canvas read from files, which must not be used if there are problems. Each names its file."""

    canvas: FolderCanvas
    problems: Sequence[str]


# --- files to a canvas --------------------------------------------------------------------------------------


def identify_canvas(
    descriptor: bytes | None,
    *,
    folder: str,
    location: tuple[str, str] | None = None,
    agent_id: str | None = None,
) -> tuple[str, CanvasId]:
    """Return the agent id and canvas id, from the location in the layout, the descriptor or the folder name.

    `read_files` refuses a descriptor that contradicts them: otherwise the import of a copied folder would
    replace the canvas that it was copied from.
    """
    if location is None:
        members = {} if descriptor is None else parse_json_object(descriptor, DESCRIPTOR)
        agent, canvas_id = members.get("agentId"), members.get("canvasId", folder)
    else:
        agent, canvas_id = location
    if agent_id is not None and agent not in (None, agent_id):
        raise BadInput(
            problem=f"The folder belongs to agent {quote_value(agent)}, not to {quote_value(agent_id)}."
        )
    agent = agent_id or (DEFAULT_AGENT_ID if agent is None else agent)
    if not isinstance(agent, str) or not isinstance(canvas_id, str):
        raise BadInput(problem=f"{DESCRIPTOR}: agentId and canvasId must be text.")
    return require_agent_id(agent), require_canvas_id(canvas_id)


def read_files(files: Mapping[str, bytes], agent_id: str, canvas_id: CanvasId) -> ReadResult:
    """Read a canvas from its files, given by path in the folder. Ignores files outside the layout.

    The limits of sizes and counts are settings of a server, which checks them.
    """
    problems: list[str] = []

    def attempt(path: str, read: Callable[[], Result]) -> Result | None:
        """Return the result of `read`. Collects its problems instead of stopping at the first one."""
        try:
            return read()
        except HostError as problem:
            found = [f"{entry['path']}: {entry['problem']}" for entry in problems_of(problem)]
            if more := problem.details.get("more"):
                found.append(f"and {more} more problems.")
            found = found or [problem.message.removeprefix(f"{path}: ")]
            problems.extend(f"{escape_unprintable(path)}: {message}" for message in found)
            return None

    title, key = attempt(DESCRIPTOR, lambda: _read_descriptor(files, agent_id, canvas_id)) or (None, None)
    spec = attempt(SPEC, lambda: _read_object(files, SPEC))
    attempt(SPEC, lambda: spec is None or parse_spec(spec, UNLIMITED))
    state = attempt(STATE, lambda: _read_object(files, STATE))
    attempt(STATE, lambda: check_state_size(state, UNLIMITED.state_bytes))
    assets = {path: content for path, content in sorted(files.items()) if path.startswith(FOLDER)}
    for path in assets:
        attempt(path, lambda path=path: require_asset_path(path))
    attempt(FOLDER, lambda: check_path_conflicts(assets))
    canvas = FolderCanvas(canvas_id=canvas_id, agent_id=agent_id, title=title, owner_session_key=key)
    return ReadResult(replace(canvas, spec=spec, state=state, assets=assets), problems)


def _read_object(files: Mapping[str, bytes], path: str) -> dict[str, Any] | None:
    return parse_json_object(files[path], path) if path in files else None


def _read_descriptor(
    files: Mapping[str, bytes], agent_id: str, canvas_id: CanvasId
) -> tuple[str | None, str | None]:
    """Return the title and the session key, which other members must not contradict."""
    members = _read_object(files, DESCRIPTOR) or {}
    for name, expected in (("agentId", agent_id), ("canvasId", canvas_id)):
        if members.get(name, expected) != expected:
            raise BadInput(
                problem=f"{name} is {quote_value(members[name])}, but must be {quote_value(expected)}."
            )
    title, key = members.get("title"), members.get("ownerSessionKey")
    for name, value in (("title", title), ("ownerSessionKey", key)):
        if not isinstance(value, str | None):
            raise BadInput(problem=f"{name} must be text.")
    return None if title is None else parse_title(title, canvas_id), require_session_key(key)


def parse_json_object(content: bytes, path: str) -> dict[str, Any]:
    """Parse a JSON object as the server does. Raises `BadInput` with the line of a syntax error."""
    try:
        text = content.decode("utf-8-sig")
        # Parsed first by `json`, for its error messages. `len` avoids the conversion of numbers.
        json.loads(text, object_pairs_hook=_refuse_duplicate_keys, parse_int=len, parse_float=len)
        value: Any = msgspec.json.decode(text)
    except json.JSONDecodeError as problem:
        where = (
            "the file is empty"
            if not content.strip()
            else f"line {problem.lineno}, column {problem.colno}: {problem.msg}"
        )
        raise BadInput(problem=f"{path}: must be JSON ({where}).") from None
    except UnicodeDecodeError:
        raise BadInput(problem=f"{path}: must be JSON in UTF-8.") from None
    except RecursionError:
        raise BadInput(problem=f"{path}: must not be nested so deeply.") from None
    except msgspec.DecodeError as problem:
        raise BadInput(problem=f"{path}: must be JSON that can be stored ({problem}).") from None
    except BadInput as problem:
        raise BadInput(problem=f"{path}: {problem.message}") from None
    return require_object(value, path)


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise BadInput(problem=f"an object must not have the key {quote_value(key)} twice.")
        seen.add(key)


# --- a canvas to files --------------------------------------------------------------------------------------


def from_view(
    view: Mapping[str, Any], assets: Mapping[str, bytes], fetched: Mapping[ArtifactId, bytes]
) -> FolderCanvas:
    """Build a canvas from the result of `canvas.get`.

    `fetched` must have the content of the artifacts that `find_offloaded` returns. Ids and paths become file
    names, so they are checked again: the server is not trusted.
    """
    descriptor = view["descriptor"]
    for path in assets:
        require_asset_path(path)
    check_path_conflicts(assets)
    return FolderCanvas(
        canvas_id=require_canvas_id(descriptor["canvasId"]),
        agent_id=require_agent_id(descriptor["agentId"]),
        title=descriptor["title"],
        owner_session_key=descriptor["ownerSessionKey"],
        spec=restore_markers(view["spec"], fetched),
        state=restore_markers(view["state"], fetched),
        assets=assets,
    )


def find_offloaded(view: Mapping[str, Any]) -> frozenset[ArtifactId]:
    """Return the artifacts with offloaded values of this canvas. A folder contains the values themselves."""
    return markers_in(view["spec"]) | markers_in(view["state"])


def to_files(
    canvas: FolderCanvas, descriptor: Mapping[str, Any], records: Iterable[Mapping[str, Any]]
) -> dict[str, bytes]:
    """Return the content of every file of the canvas's folder, by path."""
    return {
        # Without the log position, which has no meaning in a file. CV-14
        DESCRIPTOR: format_json({name: descriptor[name] for name in descriptor if name != "lastSeq"}),
        SPEC: format_json(canvas.spec),
        STATE: format_json(canvas.state),
        **canvas.assets,
        **{record_path(record): format_json(record) for record in records},
    }


def record_path(record: Mapping[str, Any]) -> str:
    """Return the path of a record. The file name begins with a time, so that files sort by time."""
    asked_at, event_id = record.get("askedAt"), record.get("eventId")
    if not isinstance(asked_at, int) or not isinstance(event_id, str) or not is_generated_id(event_id):
        raise BadInput(problem=f"The record {quote_value(event_id)} cannot be a file name.")
    return f"{EVENTS}{asked_at}-{event_id}.json"


def format_json(value: Any) -> bytes:
    """Return indented JSON, with a line end. Equal values give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def is_identical_json(left: Any, right: Any) -> bool:
    """Return whether two values have the same JSON text, except for key order. 1, 1.0 and true differ."""
    return msgspec.json.encode(left, order="sorted") == msgspec.json.encode(right, order="sorted")
