"""A canvas's spec: its members and its limits. CV-16

Owns the structure of a spec. The JSON is stored as it was sent (CV-02); `parse_spec` parses it. Errors name
the invalid member. Does not know which tools exist: `core/action/policy.py` checks the tools.

Unknown members are refused, so that a misspelt `toolPolicy` or `confirm` is not ignored. In addition to the
specification's members there are `writable` (RS-41), `toolPolicy.connect` (the origins that the canvas's page
may connect to), `toolPolicy.secrets` (the secrets that its actions may use, RS-66), `toolPolicy.hosts` (the
hosts that its fetches may reach, RS-74), `title` and `description` (for people), `$schema` (for editors), and
names that begin with `x-` (for the author; stored, but not interpreted). `version` and `mode` are optional:
the only version is 1, and the default mode is `html`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from easel.core.canvas.actions import (
    MAX_DESCRIPTION_LENGTH,
    MAX_TITLE_LENGTH,
    Action,
    CallTool,
    parse_tool_name,
    read_action,
)
from easel.core.canvas.origins import require_origin
from easel.core.problems import Problems
from easel.core.secret.secret import parse_secret_names
from easel.core.validation import (
    MAX_DEPTH,
    is_too_deep,
    is_unsafe_name,
    quote_value,
    refuse,
    require_choice,
    require_flag,
    require_id,
    require_list,
    require_number,
    require_object,
    require_text,
)
from easel.core.values.paths import Path, parse_path
from easel.core.web.hosts import MAX_HOSTS, parse_host
from easel.errors import BadInput, TooLarge

Parsed = TypeVar("Parsed")

VERSION = 1
MIN_REFRESH_MS = 1_000  # X9
MAX_REFRESH_MS = 7 * 24 * 3_600_000
MAX_CONTROL_LENGTH = 200
KNOWN = frozenset(
    [
        "$schema",
        "version",
        "mode",
        "title",
        "description",
        "toolPolicy",
        "state",
        "actions",
        "bindings",
        "refresh",
        "writable",
    ]
)


class Mode(StrEnum):
    HTML = "html"
    MARKDOWN = "markdown"  # RS-32


def with_mode(spec: Mapping[str, Any], mode: str | None) -> Mapping[str, Any]:
    """Return the spec with the mode that a client names beside it. RS-67

    Raises `BadInput` if the mode is unknown or differs from the mode in the spec.
    """
    if mode is None:
        return spec
    require_choice(mode, Mode, "mode")
    if spec.get("mode", mode) != mode:
        refuse("mode", f"must be the mode of the spec, {quote_value(spec['mode'])}, or be left out.")
    return {**spec, "mode": mode}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecLimits:
    """The maximum size of a spec and of its parts: more than one page can show."""

    spec_bytes: int = 524_288  # of the spec without its state; every view gets it whole
    state_bytes: int = 1_048_576
    actions: int = 500
    bindings: int = 1_000  # two for each action
    refreshes: int = 50  # as many as one instance runs at once
    tools: int = 500


DEFAULT_LIMITS = SpecLimits()
# For stored specs: they were checked against the limits that applied when they were stored.
UNLIMITED = SpecLimits(**{limit.name: 2**63 - 1 for limit in fields(SpecLimits)})


@dataclass(frozen=True, slots=True)
class Refresh:
    """A job that runs an action at an interval. CV-19"""

    refresh_id: str
    every_ms: int
    action_id: str
    is_enabled: bool
    only_watched: bool = False  # paused while the canvas has no live view


@dataclass(frozen=True, slots=True, kw_only=True)
class CanvasSpec:
    mode: Mode = Mode.HTML
    tools: frozenset[str] = frozenset()  # toolPolicy.allow; empty: no tool is allowed. CV-40
    connect: tuple[str, ...] = ()  # toolPolicy.connect
    secrets: tuple[str, ...] = ()  # toolPolicy.secrets: names that its actions may use. RS-66
    hosts: frozenset[str] = frozenset()  # toolPolicy.hosts: that its fetches may reach. RS-74
    # toolPolicy.shell and .data: arguments by tool that a shell reads, and that none does. RS-71
    shell: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    actions: Mapping[str, Action] = field(default_factory=dict[str, Action])
    bindings: Mapping[str, str] = field(default_factory=dict[str, str])
    refreshes: tuple[Refresh, ...] = ()
    writable: tuple[Path, ...] | None = None

    def may_write(self, path: Path) -> bool:
        """Return whether a field of the page (`data-gsv-model`) may write this path. RS-41"""
        allowed = [(name,) for name in self.state] if self.writable is None else self.writable
        return any(path[: len(prefix)] == prefix for prefix in allowed)


def parse_spec(raw: Any, limits: SpecLimits = DEFAULT_LIMITS) -> CanvasSpec:
    """Parse a spec. Raises `TooLarge`, or `BadInput` with all problems of the spec."""
    problems = Problems()
    spec = read_spec(raw, limits, problems)
    problems.raise_all("The spec")
    return spec


def read_spec(raw: Any, limits: SpecLimits, problems: Problems) -> CanvasSpec:
    """Return the valid parts of a spec and add its problems, so that other checks can add theirs.

    Raises `TooLarge` or `BadInput` for the size and the depth, which are checked before anything is parsed.
    """
    members = require_object(raw, "spec")
    declared = require_object(members.get("actions", {}), "actions", max_items=limits.actions)
    _check_sizes(members, limits)
    take = problems.take
    problems.check_members(members, KNOWN, "")
    take(None, _check_version, members.get("version", VERSION))
    for name, max_length in (
        ("$schema", MAX_TITLE_LENGTH),
        ("title", MAX_TITLE_LENGTH),
        ("description", MAX_DESCRIPTION_LENGTH),
    ):
        if name in members:
            take("", require_text, members[name], name, max_length=max_length, may_be_empty=True)
    policy = take(dict[str, Any](), require_object, members.get("toolPolicy", {}), "toolPolicy")
    tools, connect, secrets, hosts = _read_policy(policy, limits, problems)
    actions = {name: _read_action(name, action, hosts, problems) for name, action in declared.items()}
    _check_secrets(actions, secrets, problems)
    return CanvasSpec(
        mode=take(Mode.HTML, require_choice, members.get("mode", Mode.HTML), Mode, "mode"),
        tools=tools,
        connect=connect,
        secrets=secrets,
        hosts=hosts,
        shell=_read_arguments(policy, "shell", problems),
        data=_read_arguments(policy, "data", problems),
        state=take(dict[str, Any](), require_object, members.get("state", {}), "state"),
        actions={name: action for name, action in actions.items() if action is not None},
        bindings=_read_bindings(members.get("bindings", {}), declared, limits, problems),
        refreshes=_read_refreshes(members.get("refresh", []), declared, limits, problems),
        writable=_read_writable(members["writable"], limits, problems) if "writable" in members else None,
    )


def _check_version(version: Any) -> None:
    if version != VERSION or isinstance(version, (bool, float)):
        value = quote_value(version) if isinstance(version, str) else repr(version)[:20]
        refuse("version", f"must be {VERSION}; {value} is not supported.")


# --- sizes --------------------------------------------------------------------------------------------------


def check_state_size(state: Any, limit: int) -> None:
    """Raise `TooLarge` or `BadInput` if the state is too large as compact JSON, or nested too deeply."""
    if _size(state, "state") > limit:
        raise TooLarge(what="state", limit=limit)
    if is_too_deep(state):
        refuse("state", f"must not be nested deeper than {MAX_DEPTH} levels.")


def _check_sizes(members: Mapping[str, Any], limits: SpecLimits) -> None:
    if "state" in members:
        check_state_size(members["state"], limits.state_bytes)
    rest = {name: part for name, part in members.items() if name != "state"}
    if _size(rest, "spec") > limits.spec_bytes:
        raise TooLarge(what="spec without its state", limit=limits.spec_bytes)
    if is_too_deep(rest):
        refuse("spec", f"must not be nested deeper than {MAX_DEPTH} levels.")


def _size(value: Any, at: str) -> int:
    try:
        return len(msgspec.json.encode(value))
    except RecursionError:
        refuse(at, f"must not be nested deeper than {MAX_DEPTH} levels.")
    except (TypeError, UnicodeEncodeError):
        raise BadInput(problem=f"{at}: must be JSON that can be stored.") from None


# --- parts --------------------------------------------------------------------------------------------------


def _read_policy(
    members: Mapping[str, Any], limits: SpecLimits, problems: Problems
) -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...], frozenset[str]]:
    take = problems.take
    problems.check_members(members, {"allow", "connect", "secrets", "hosts", "shell", "data"}, "toolPolicy")
    allow, origins = members.get("allow", []), members.get("connect", [])
    tools = _read_list(allow, "toolPolicy.allow", parse_tool_name, limits.tools, problems)
    connect = _read_list(origins, "toolPolicy.connect", require_origin, limits.tools, problems)
    secrets = take((), parse_secret_names, members.get("secrets", []), "toolPolicy.secrets")
    hosts = _read_list(members.get("hosts", []), "toolPolicy.hosts", parse_host, MAX_HOSTS, problems)
    return frozenset(tools), tuple(connect), secrets, frozenset(hosts)


def _read_action(name: str, raw: Any, hosts: frozenset[str], problems: Problems) -> Action | None:
    action = read_action(name, raw, problems)
    return replace(action, hosts=hosts) if isinstance(action, CallTool) else action


def _read_arguments(
    policy: Mapping[str, Any], name: str, problems: Problems
) -> Mapping[str, tuple[str, ...]]:
    """Return the arguments by tool that `toolPolicy.shell` or `.data` names. RS-71"""
    at = f"toolPolicy.{name}"
    declared = problems.take(dict[str, Any](), require_object, policy.get(name, {}), at, max_items=500)
    return {
        tool: tuple(_read_list(arguments, f"{at}.{tool}", _parse_argument, MAX_DEPTH, problems))
        for tool, arguments in declared.items()
        if problems.take(None, parse_tool_name, tool, at)
    }


def _parse_argument(raw: Any, at: str) -> str:
    return require_text(raw, at, max_length=MAX_CONTROL_LENGTH)


def _check_secrets(
    actions: Mapping[str, Action | None], declared: Collection[str], problems: Problems
) -> None:
    """Add a problem for each secret that an action uses and `toolPolicy.secrets` does not list. RS-66"""
    for action_id, action in actions.items():
        for name in sorted(action.secret_names) if isinstance(action, CallTool) else ():
            if name not in declared:
                problem = f"uses the secret {name}, which toolPolicy.secrets does not list."
                problems.add(f"actions.{action_id}", problem)


def _read_list(
    raw: Any, at: str, parse: Callable[[Any, str], Parsed], max_items: int, problems: Problems
) -> list[Parsed]:
    """Return the valid entries of a list."""
    entries = problems.take(list[Any](), require_list, raw, at, max_items=max_items)
    parsed = [problems.take(None, parse, entry, f"{at}[{number}]") for number, entry in enumerate(entries)]
    return [entry for entry in parsed if entry is not None]


def _read_bindings(
    raw: Any, actions: Mapping[str, Any], limits: SpecLimits, problems: Problems
) -> Mapping[str, str]:
    bindings = problems.take(dict[str, Any](), require_object, raw, "bindings", max_items=limits.bindings)
    for control, action_id in bindings.items():
        problems.take(None, _check_control, control)
        _check_declared(action_id, actions, f"bindings.{control}", problems)
    return bindings


def _check_control(control: str) -> None:
    if (
        not 0 < len(control) <= MAX_CONTROL_LENGTH
        or not control.isprintable()
        or any(map(is_unsafe_name, control.split(".")))
    ):
        refuse(
            "bindings",
            f"{quote_value(control)} is not the name of a control; "
            f"it must be 1 to {MAX_CONTROL_LENGTH} printable characters, such as buttons.deployNow.",
        )


def _read_refreshes(
    raw: Any, actions: Mapping[str, Any], limits: SpecLimits, problems: Problems
) -> tuple[Refresh, ...]:
    entries = problems.take(list[Any](), require_list, raw, "refresh", max_items=limits.refreshes)
    refreshes = [
        _read_refresh(entry, actions, f"refresh[{number}]", problems) for number, entry in enumerate(entries)
    ]
    _check_unique([refresh.refresh_id if refresh else "" for refresh in refreshes], problems)
    return tuple(refresh for refresh in refreshes if refresh is not None)


def _read_refresh(raw: Any, actions: Mapping[str, Any], at: str, problems: Problems) -> Refresh | None:
    take = problems.take
    members = take(None, require_object, raw, at)
    if members is None:
        return None
    problems.check_members(members, {"id", "everyMs", "action", "enabled", "onlyWatched"}, at)
    return Refresh(
        refresh_id=take("", require_id, members.get("id"), f"{at}.id"),
        every_ms=take(
            MAX_REFRESH_MS,
            require_number,
            members.get("everyMs"),
            f"{at}.everyMs",
            minimum=MIN_REFRESH_MS,
            maximum=MAX_REFRESH_MS,
        ),
        action_id=_check_declared(members.get("action"), actions, f"{at}.action", problems),
        is_enabled=take(False, require_flag, members.get("enabled", True), f"{at}.enabled"),
        only_watched=take(False, require_flag, members.get("onlyWatched", False), f"{at}.onlyWatched"),
    )


def _check_declared(action_id: Any, actions: Mapping[str, Any], at: str, problems: Problems) -> str:
    if isinstance(action_id, str) and action_id in actions:
        return action_id
    word = action_id if isinstance(action_id, str) else ""
    problems.add(at, f"{quote_value(action_id)} is not a declared action", word=word, known=actions.keys())
    return ""


def _check_unique(ids: Sequence[str], problems: Problems) -> None:
    for number, refresh_id in enumerate(ids):
        if refresh_id and refresh_id in ids[:number]:
            problems.add(f"refresh[{number}].id", f"`{refresh_id}` is used twice.")


def _read_writable(raw: Any, limits: SpecLimits, problems: Problems) -> tuple[Path, ...]:
    return tuple(_read_list(raw, "writable", parse_path, limits.bindings, problems))
