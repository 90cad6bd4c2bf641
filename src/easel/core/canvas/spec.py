"""A canvas's spec: what an author may declare, and the refusal of everything else with the place where it stands. CV-16

Owns the shape of a spec and its limits. What is stored is the JSON as it was given (CV-02); `checked_spec` is how it is read.
What depends on the tools that exist is `policy.py`.

A member that is not known is refused, since a misspelt `toolPolicy` or `confirm` must not pass for one that was left out. Beyond
the specification's own members there are `writable` (RS-41), `toolPolicy.connect` (the origins that the canvas's page may reach),
`title` and `description` (for people), `$schema` (for editors), and whatever begins with `x-` (the author's own, kept unread).
`version` and `mode` may be left out: there is one version, and a canvas is `html` unless it says `markdown`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from easel.core.canvas.actions import (
    MAX_DESCRIPTION_LENGTH,
    MAX_TITLE_LENGTH,
    Action,
    checked_action,
    checked_tool,
)
from easel.core.canvas.origins import checked_origin
from easel.core.validation import (
    MAX_DEPTH,
    check_members,
    checked_choice,
    checked_flag,
    checked_id,
    checked_list,
    checked_number,
    checked_object,
    checked_text,
    is_too_deep,
    is_unsafe_name,
    refuse,
    shown,
)
from easel.core.values.paths import Path, checked_path
from easel.errors import BadInput, TooLarge

VERSION = 1
MIN_REFRESH_MS = 1_000  # X9
MAX_REFRESH_MS = 7 * 24 * 3_600_000
MAX_CONTROL_LENGTH = 200
KNOWN = frozenset(
    {
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
    }
)


class Mode(StrEnum):
    HTML = "html"
    MARKDOWN = "markdown"  # RS-32


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecLimits:
    """How large a spec may be. A canvas beyond this is a program, and belongs behind a tool."""

    spec_bytes: int = 524_288  # without its state
    state_bytes: int = 1_048_576
    actions: int = 500
    bindings: int = 1_000
    refreshes: int = 50
    tools: int = 500


DEFAULT_LIMITS = SpecLimits()


@dataclass(frozen=True, slots=True)
class Refresh:
    """An action that runs by itself, again and again. CV-19"""

    refresh_id: str
    every_ms: int
    action_id: str
    is_enabled: bool
    only_watched: bool = False  # rests while nobody looks at its canvas


@dataclass(frozen=True, slots=True, kw_only=True)
class CanvasSpec:
    mode: Mode = Mode.HTML
    tools: frozenset[str] = frozenset()  # toolPolicy.allow; empty allows nothing. CV-40
    connect: tuple[str, ...] = ()  # toolPolicy.connect
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    actions: Mapping[str, Action] = field(default_factory=dict[str, Action])
    bindings: Mapping[str, str] = field(default_factory=dict[str, str])
    refreshes: tuple[Refresh, ...] = ()
    writable: tuple[Path, ...] | None = None

    def may_write(self, path: Path) -> bool:
        """Whether a page may write here by `data-gsv-model`. RS-41"""
        allowed = [(name,) for name in self.state] if self.writable is None else self.writable
        return any(path[: len(one)] == one for one in allowed)


def checked_spec(raw: Any, limits: SpecLimits = DEFAULT_LIMITS) -> CanvasSpec:
    """Cheap refusals come first: how many, how large, then every part by itself, and what they say of each other."""
    given = checked_object(raw, "spec")
    declared = checked_object(given.get("actions", {}), "actions", most=limits.actions)
    _check_sizes(given, limits)
    check_members(given, KNOWN, "")
    version = given.get("version", VERSION)
    if version != VERSION or isinstance(version, (bool, float)):
        refuse(
            "version",
            f"is {VERSION}; {shown(version) if isinstance(version, str) else version!r:.20} is not supported.",
        )
    for name, longest in (
        ("$schema", MAX_TITLE_LENGTH),
        ("title", MAX_TITLE_LENGTH),
        ("description", MAX_DESCRIPTION_LENGTH),
    ):
        if name in given:
            checked_text(given[name], name, longest=longest, may_be_empty=True)
    tools, connect = _checked_policy(given.get("toolPolicy", {}), limits)
    actions = {name: checked_action(name, action) for name, action in declared.items()}
    return CanvasSpec(
        mode=checked_choice(given.get("mode", Mode.HTML), Mode, "mode"),
        tools=tools,
        connect=connect,
        state=checked_object(given.get("state", {}), "state"),
        actions=actions,
        bindings=_checked_bindings(given.get("bindings", {}), actions, limits),
        refreshes=_checked_refreshes(given.get("refresh", []), actions, limits),
        writable=_checked_writable(given["writable"], limits) if "writable" in given else None,
    )


# --- sizes --------------------------------------------------------------------------------------------------------------


def check_state_size(state: Any, limit: int) -> None:
    """Measured as it is stored: compact JSON."""
    if _size(state, "state") > limit:
        raise TooLarge(what="state", limit=limit)
    if is_too_deep(state):
        refuse("state", f"is nested deeper than {MAX_DEPTH} levels.")


def _check_sizes(given: Mapping[str, Any], limits: SpecLimits) -> None:
    if "state" in given:
        check_state_size(given["state"], limits.state_bytes)
    rest = {name: part for name, part in given.items() if name != "state"}
    if _size(rest, "spec") > limits.spec_bytes:
        raise TooLarge(what="spec without its state", limit=limits.spec_bytes)
    if is_too_deep(rest):
        refuse("spec", f"is nested deeper than {MAX_DEPTH} levels.")


def _size(value: Any, at: str) -> int:
    try:
        return len(msgspec.json.encode(value))
    except RecursionError:
        refuse(at, f"is nested deeper than {MAX_DEPTH} levels.")
    except (TypeError, UnicodeEncodeError):
        raise BadInput(problem=f"{at}: is not JSON that can be stored.") from None


# --- parts --------------------------------------------------------------------------------------------------------------


def _checked_policy(raw: Any, limits: SpecLimits) -> tuple[frozenset[str], tuple[str, ...]]:
    given = checked_object(raw, "toolPolicy")
    check_members(given, {"allow", "connect"}, "toolPolicy")
    allow = checked_list(given.get("allow", []), "toolPolicy.allow", most=limits.tools)
    tools = frozenset(checked_tool(name, f"toolPolicy.allow[{number}]") for number, name in enumerate(allow))
    connect = checked_list(given.get("connect", []), "toolPolicy.connect", most=limits.tools)
    return tools, tuple(
        checked_origin(origin, f"toolPolicy.connect[{number}]") for number, origin in enumerate(connect)
    )


def _checked_bindings(raw: Any, actions: Mapping[str, Action], limits: SpecLimits) -> Mapping[str, str]:
    bindings = checked_object(raw, "bindings", most=limits.bindings)
    for control, action_id in bindings.items():
        if (
            not 0 < len(control) <= MAX_CONTROL_LENGTH
            or not control.isprintable()
            or any(map(is_unsafe_name, control.split(".")))
        ):
            refuse(
                "bindings",
                f"{shown(control)} is no control's name: 1 to {MAX_CONTROL_LENGTH} printable characters, such as buttons.deployNow.",
            )
        _check_declared(action_id, actions, f"bindings.{control}")
    return bindings


def _checked_refreshes(raw: Any, actions: Mapping[str, Action], limits: SpecLimits) -> tuple[Refresh, ...]:
    refreshes = tuple(
        _checked_refresh(entry, actions, f"refresh[{number}]")
        for number, entry in enumerate(checked_list(raw, "refresh", most=limits.refreshes))
    )
    _check_unique([one.refresh_id for one in refreshes])
    return refreshes


def _checked_refresh(raw: Any, actions: Mapping[str, Action], at: str) -> Refresh:
    given = checked_object(raw, at)
    check_members(given, {"id", "everyMs", "action", "enabled", "onlyWatched"}, at)
    return Refresh(
        refresh_id=checked_id(given.get("id"), f"{at}.id"),
        every_ms=checked_number(
            given.get("everyMs"), f"{at}.everyMs", lowest=MIN_REFRESH_MS, highest=MAX_REFRESH_MS
        ),
        action_id=_check_declared(given.get("action"), actions, f"{at}.action"),
        is_enabled=checked_flag(given.get("enabled", True), f"{at}.enabled"),
        only_watched=checked_flag(given.get("onlyWatched", False), f"{at}.onlyWatched"),
    )


def _check_declared(action_id: Any, actions: Mapping[str, Action], at: str) -> str:
    if not isinstance(action_id, str) or action_id not in actions:
        refuse(at, f"{shown(action_id)} is not among the actions.")
    return action_id


def _check_unique(ids: Sequence[str]) -> None:
    for number, one in enumerate(ids):
        if one in ids[:number]:
            refuse(f"refresh[{number}].id", f"`{one}` is there already.")


def _checked_writable(raw: Any, limits: SpecLimits) -> tuple[Path, ...]:
    return tuple(
        checked_path(path, f"writable[{number}]")
        for number, path in enumerate(checked_list(raw, "writable", most=limits.bindings))
    )
