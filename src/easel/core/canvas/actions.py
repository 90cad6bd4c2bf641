"""The actions of a canvas: what each kind needs, and what an action becomes when it is pressed. CV-10, CV-20, CV-24, CV-25

Owns the three kinds and their resolution: from a declaration, a state and an input to the one call or message that runs. What is
resolved is final: it is shown to the person who confirms, and exactly that is sent.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from easel.core.session.session import is_session_key
from easel.core.shell.template import compile_template, is_shell
from easel.core.tool.definition import ToolDefinition
from easel.core.validation import (
    check_members,
    checked_choice,
    checked_flag,
    checked_id,
    checked_number,
    checked_object,
    checked_text,
    refuse,
    shown,
)
from easel.core.values.patch import Patch, checked_patch
from easel.core.values.paths import Path, SaveMode, checked_path
from easel.core.values.template import (
    MAX_FILLED_LENGTH,
    Filler,
    Template,
    Values,
    leaves,
    parsed,
    parsed_tree,
)

MAX_MESSAGE_LENGTH = 32_000  # characters of a message to a session, before its placeholders are filled
MAX_TITLE_LENGTH = 200
MAX_DESCRIPTION_LENGTH = 2_000
MAX_TIMEOUT_MS = 3_600_000
_TOOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,299}")


class ActionKind(StrEnum):
    TOOL_CALL = "tool.call"
    SESSION_SEND = "session.send"
    STATE_PATCH = "state.patch"


class Confirm(StrEnum):
    """Whether a person is asked first. Ordered: `never` < `auto` < `always`. RS-13"""

    NEVER = "never"
    AUTO = "auto"
    ALWAYS = "always"


class WhenMissing(StrEnum):
    """What a missing value does in an argument that a shell reads. RS-57"""

    FAIL = "fail"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Saving:
    path: Path
    mode: SaveMode


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    action_id: str
    tool: str
    args: Mapping[str, Any]  # as they were written
    template: Mapping[str, Any]  # the same, with a Template for each string that has placeholders
    saving: Saving | None
    confirm: Confirm
    timeout_ms: int | None
    missing: WhenMissing
    allows_options: bool
    title: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    action_id: str
    message: Template | str
    session_key: str | None
    saving: Saving | None
    confirm: Confirm
    timeout_ms: int | None
    title: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchState:
    action_id: str
    patch: Patch
    confirm: Confirm
    title: str | None


Action = CallTool | SendMessage | PatchState

_ALWAYS = frozenset({"kind", "confirm", "title", "description"})
_SAVES = frozenset({"saveAs", "saveMode", "timeoutMs"})
_KNOWN = {
    ActionKind.TOOL_CALL: _ALWAYS | _SAVES | {"tool", "args", "missing", "allowOptions"},
    ActionKind.SESSION_SEND: _ALWAYS | _SAVES | {"message", "sessionKey"},
    ActionKind.STATE_PATCH: _ALWAYS | {"patch"},
}


# --- reading ------------------------------------------------------------------------------------------------------------


def checked_action(action_id: str, raw: Any) -> Action:
    at = f"actions.{checked_id(action_id, 'actions')}"
    given = checked_object(raw, at)
    kind = checked_choice(given.get("kind"), ActionKind, f"{at}.kind")
    check_members(given, _KNOWN[kind], at)
    confirm = checked_choice(given.get("confirm", Confirm.AUTO), Confirm, f"{at}.confirm")
    title = (
        checked_text(given["title"], f"{at}.title", longest=MAX_TITLE_LENGTH) if "title" in given else None
    )
    if "description" in given:
        checked_text(
            given["description"], f"{at}.description", longest=MAX_DESCRIPTION_LENGTH, may_be_empty=True
        )
    match kind:
        case ActionKind.TOOL_CALL:
            if "tool" not in given:
                refuse(f"{at}.tool", "is missing, and tool.call needs it.")
            args = checked_object(given.get("args", {}), f"{at}.args")
            return CallTool(
                action_id=action_id,
                tool=checked_tool(given["tool"], f"{at}.tool"),
                args=args,
                template=parsed_tree(args, f"{at}.args"),
                saving=_saving(given, at),
                confirm=confirm,
                timeout_ms=_timeout(given, at),
                missing=checked_choice(given.get("missing", WhenMissing.FAIL), WhenMissing, f"{at}.missing"),
                allows_options=checked_flag(given.get("allowOptions", False), f"{at}.allowOptions"),
                title=title,
            )
        case ActionKind.SESSION_SEND:
            message = checked_text(given.get("message"), f"{at}.message", longest=MAX_MESSAGE_LENGTH)
            return SendMessage(
                action_id=action_id,
                message=parsed(message, f"{at}.message"),
                session_key=checked_session_key(given["sessionKey"], f"{at}.sessionKey")
                if "sessionKey" in given
                else None,
                saving=_saving(given, at),
                confirm=confirm,
                timeout_ms=_timeout(given, at),
                title=title,
            )
        case ActionKind.STATE_PATCH:
            if "patch" not in given:
                refuse(f"{at}.patch", "is missing, and state.patch needs it.")
            return PatchState(
                action_id=action_id,
                patch=checked_patch(given["patch"], f"{at}.patch"),
                confirm=confirm,
                title=title,
            )


def checked_tool(value: Any, at: str) -> str:
    """The exact name of a tool: `gsv__LogsGet`, `server-a__Bash`. There are no patterns. CV-40, X4"""
    if not isinstance(value, str) or not _TOOL.fullmatch(value):
        refuse(
            at,
            f"{shown(value)} is no tool's name; it is exact, such as server-a__Bash: letters, digits and . _ : - only.",
        )
    return value


def checked_session_key(value: Any, at: str) -> str:
    """`agent:{agentId}:{name}`; templates are not resolved here. CV-26"""
    if not isinstance(value, str) or not is_session_key(value):
        refuse(at, f"{shown(value)} is no session's key: agent:{{agentId}}:{{name}}.")
    return value


def _saving(given: Mapping[str, Any], at: str) -> Saving | None:
    if "saveAs" not in given:
        if "saveMode" in given:
            refuse(f"{at}.saveMode", "needs saveAs beside it.")
        return None
    mode = checked_choice(given.get("saveMode", SaveMode.REPLACE), SaveMode, f"{at}.saveMode")
    return Saving(checked_path(given["saveAs"], f"{at}.saveAs"), mode)


def _timeout(given: Mapping[str, Any], at: str) -> int | None:
    return (
        checked_number(given["timeoutMs"], f"{at}.timeoutMs", lowest=1, highest=MAX_TIMEOUT_MS)
        if "timeoutMs" in given
        else None
    )


# --- resolving ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """The one call that an action became: nothing in it is a template any more."""

    tool: str
    args: Mapping[str, Any]
    session_key: str  # in whose folder it works
    read_by_shell: tuple[str, ...] = ()  # the arguments that are commands, and were quoted as such

    @property
    def digest(self) -> str:
        """Names this call and no other, so that what was confirmed can be compared with what is about to run. X6"""
        return fingerprint([self.tool, self.args, self.session_key, self.read_by_shell])


def fingerprint(said: Any) -> str:
    """The same for what is the same as JSON, whatever the order of its names."""
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def resolved_call(
    action: CallTool,
    definition: ToolDefinition,
    values: Values,
    session_key: str,
    *,
    limit: int = MAX_FILLED_LENGTH,
) -> ResolvedCall:
    """Held to the definition in force now: a template that it makes unsafe is refused here too. CV-26, CV-27, RS-16, RS-45"""
    filler = Filler(values, limit=limit)

    def for_shell(template: Template, path: tuple[str | int, ...]) -> str | None:
        if not is_shell(definition.schema, path):
            return None
        at = place_of_argument(action.action_id, path)
        command = compile_template(template, at, allows_options=action.allows_options)
        return command.filled(
            filler.texts(template), at, missing_is_empty=action.missing is WhenMissing.EMPTY
        )

    args = filler.filled_tree(action.template, for_shell)
    return ResolvedCall(action.tool, args, session_key, read_by_shell(args, definition))


def read_by_shell(args: Any, definition: ToolDefinition) -> tuple[str, ...]:
    """Which of these arguments the tool hands to a shell, by the definition in force now."""
    return tuple(
        place_of(path)
        for path, leaf in leaves(args)
        if isinstance(leaf, str) and is_shell(definition.schema, path)
    )


def resolved_message(action: SendMessage, values: Values, *, limit: int = MAX_FILLED_LENGTH) -> str:
    return Filler(values, limit=limit).filled(action.message)


def place_of_argument(action_id: str, path: tuple[str | int, ...]) -> str:
    return f"actions.{action_id}.args{place_of(path)}"


def place_of(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
