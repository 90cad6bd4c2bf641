"""The actions that a canvas spec declares: the three kinds and their members. CV-10, CV-20, CV-24, CV-25

Owns parsing a declaration. Does not know how an action is resolved or executed: see `core.action`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from easel.core.problems import Problems
from easel.core.secret.secret import parse_secret_names
from easel.core.session.session import MAIN_ALIAS, is_session_key
from easel.core.validation import (
    quote_value,
    refuse,
    require_choice,
    require_id,
    require_list,
    require_number,
    require_object,
    require_text,
)
from easel.core.values.patch import Operation, Patch, parse_operation, require_operations
from easel.core.values.paths import Path, SaveMode, parse_path
from easel.core.values.references import (
    NAMES,
    SecretRef,
    ValueRef,
    find_references,
    parse_references,
    parse_value_path,
    walk_unresolved,
)
from easel.core.values.template import (
    Template,
    find_placeholders,
    has_braces,
    parse_template,
    parse_templates,
)

# Characters of a message to a session, before its placeholders are filled.
MAX_MESSAGE_LENGTH = 32_000
MAX_TITLE_LENGTH = 200
MAX_DESCRIPTION_LENGTH = 2_000
MAX_TIMEOUT_MS = 3_600_000
MAX_NAMED = 50  # placeholders in `text` and `allowOptions`
_TOOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,299}")


class ActionKind(StrEnum):
    TOOL_CALL = "tool.call"
    SESSION_SEND = "session.send"
    STATE_PATCH = "state.patch"


class Confirm(StrEnum):
    """Whether a person must confirm the action, in ascending strictness. `auto` depends on the tool. RS-13"""

    NEVER = "never"
    AUTO = "auto"
    ALWAYS = "always"


class Approval(StrEnum):
    """The approver of a call: any member, or only another person than its asker. RS-77"""

    ANYONE = "anyone"
    ANOTHER = "another"


class WhenMissing(StrEnum):
    """How a missing value is handled in an argument that a shell reads. RS-57"""

    FAIL = "fail"
    EMPTY = "empty"


class Parse(StrEnum):
    """The format of a result's text, whose value is saved in place of the text."""

    JSON = "json"
    LINES = "lines"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class SaveTarget:
    """Where in the state a result is saved (`saveAs`), and how (`saveMode`, `parse`)."""

    path: Path
    mode: SaveMode
    parse: Parse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    action_id: str
    tool: str
    args: Mapping[str, Any]  # as declared
    # `args` with a Template in place of each string that has placeholders, and with parsed references
    template: Mapping[str, Any]
    save_target: SaveTarget | None
    confirm: Confirm
    timeout_ms: int | None
    missing: WhenMissing
    title: str | None
    terms: Mapping[str, Any] = field(compare=False)
    approval: Approval = Approval.ANYONE  # RS-77
    texts: tuple[str, ...] = ()  # placeholders that take any text in a command. RS-71
    options: tuple[str, ...] = ()  # placeholders whose values may begin with `-` there
    secrets: tuple[str, ...] = ()  # variables of the tool's command. RS-66
    hosts: frozenset[str] = frozenset()  # toolPolicy.hosts of its spec. RS-74

    @property
    def secret_names(self) -> frozenset[str]:
        """The secrets of the arguments and of the command."""
        found = (reference for _, reference in find_references(self.template))
        return frozenset((*(ref.name for ref in found if isinstance(ref, SecretRef)), *self.secrets))


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    action_id: str
    message: Template | str
    session_key: str | None
    save_target: SaveTarget | None
    confirm: Confirm
    timeout_ms: int | None
    title: str | None
    terms: Mapping[str, Any] = field(compare=False)
    approval: Approval = Approval.ANYONE  # RS-77


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchState:
    action_id: str
    declared: Sequence[Any]  # the operations as declared
    patch: Patch  # with parsed references
    confirm: Confirm
    title: str | None
    terms: Mapping[str, Any] = field(compare=False)
    approval: Approval = Approval.ANYONE  # RS-77


Action = CallTool | SendMessage | PatchState

_ALWAYS = frozenset({"kind", "confirm", "approval", "title", "description"})
_SAVES = frozenset({"saveAs", "saveMode", "parse", "timeoutMs"})
_KNOWN = {
    ActionKind.TOOL_CALL: _ALWAYS | _SAVES | {"tool", "args", "missing", "text", "allowOptions", "secrets"},
    ActionKind.SESSION_SEND: _ALWAYS | _SAVES | {"message", "sessionKey"},
    ActionKind.STATE_PATCH: _ALWAYS | {"patch"},
}
_ANY_KIND = frozenset(name for names in _KNOWN.values() for name in names)
# The members that a confirmation has in their resolved form. All others are its `terms`, as declared. RS-72
_RESOLVED = frozenset({"kind", "tool", "args", "secrets", "message", "sessionKey", "patch", "approval"})


class _Consent(NamedTuple):
    """Whether a person is asked before the action, and who may answer."""

    confirm: Confirm
    approval: Approval


def read_action(action_id: str, raw: Any, problems: Problems) -> Action | None:
    """Return the action that `raw` declares, or None if too little of it is valid.

    The action counts only if no problem was added.
    """
    known_id = problems.take(None, require_id, action_id, "actions")
    if known_id is None:
        return None
    at = f"actions.{known_id}"
    declared = problems.take(None, require_object, raw, at)
    if declared is None:
        return None
    kind = problems.take(None, require_choice, declared.get("kind"), ActionKind, f"{at}.kind")
    problems.check_members(declared, _ANY_KIND if kind is None else _KNOWN[kind], at)
    confirm = problems.take(
        Confirm.ALWAYS, require_choice, declared.get("confirm", Confirm.AUTO), Confirm, f"{at}.confirm"
    )
    approval = problems.take(Approval.ANYONE, _approval, declared, kind, confirm, f"{at}.approval")
    consent = _Consent(confirm, approval)
    title = None
    if "title" in declared:
        title = problems.take(
            None, require_text, declared["title"], f"{at}.title", max_length=MAX_TITLE_LENGTH
        )
    if "description" in declared:
        problems.take(
            "",
            require_text,
            declared["description"],
            f"{at}.description",
            max_length=MAX_DESCRIPTION_LENGTH,
            may_be_empty=True,
        )
    match kind:
        case None:
            return None
        case ActionKind.TOOL_CALL:
            return _read_call(action_id, declared, problems, consent, title)
        case ActionKind.SESSION_SEND:
            return _read_message(action_id, declared, problems, consent, title)
        case ActionKind.STATE_PATCH:
            if "patch" not in declared:
                problems.add(f"{at}.patch", "is required by state.patch.")
                return None
            return PatchState(
                action_id=action_id,
                declared=declared["patch"],
                patch=_read_patch(declared["patch"], f"{at}.patch", problems),
                confirm=confirm,
                approval=approval,
                title=title,
                terms=_terms(declared),
            )


def _approval(declared: Mapping[str, Any], kind: ActionKind | None, confirm: Confirm, at: str) -> Approval:
    """Return who may approve the action. Refuses an approval of what no person is ever asked. RS-77"""
    approval = require_choice(declared.get("approval", Approval.ANYONE), Approval, at)
    if approval is Approval.ANOTHER and confirm is Confirm.NEVER:
        refuse(at, "must not be `another` beside `confirm: never`: nobody is asked then.")
    if approval is Approval.ANOTHER and kind is ActionKind.STATE_PATCH and confirm is not Confirm.ALWAYS:
        refuse(at, "needs `confirm: always`: a change of the state asks nobody without it.")
    return approval


def _terms(declared: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in declared.items() if name not in _RESOLVED}


def _read_call(
    action_id: str, declared: Mapping[str, Any], problems: Problems, consent: _Consent, title: str | None
) -> CallTool:
    at, take = f"actions.{action_id}", problems.take
    if "tool" not in declared:
        problems.add(f"{at}.tool", "is required by tool.call.")
    args = take(dict[str, Any](), require_object, declared.get("args", {}), f"{at}.args")
    return CallTool(
        action_id=action_id,
        tool=take("", parse_tool_name, declared["tool"], f"{at}.tool") if "tool" in declared else "",
        args=args,
        template=_read_arguments(args, f"{at}.args", problems),
        save_target=take(None, _save_target, declared, at),
        confirm=consent.confirm,
        approval=consent.approval,
        timeout_ms=take(None, _timeout, declared, at),
        missing=take(
            WhenMissing.FAIL,
            require_choice,
            declared.get("missing", WhenMissing.FAIL),
            WhenMissing,
            f"{at}.missing",
        ),
        title=title,
        terms=_terms(declared),
        texts=take((), _parse_placeholders, declared, "text", at),
        options=take((), _parse_placeholders, declared, "allowOptions", at),
        secrets=take((), parse_secret_names, declared.get("secrets", []), f"{at}.secrets"),
    )


def _parse_placeholders(declared: Mapping[str, Any], name: str, at: str) -> tuple[str, ...]:
    """Return the placeholders that `text` or `allowOptions` names, such as `input.note`. RS-71"""
    raw = declared.get(name, [])
    if isinstance(raw, bool):
        refuse(f"{at}.{name}", 'must be a list of placeholders, such as ["state.folder"].')
    named = require_list(raw, f"{at}.{name}", max_items=MAX_NAMED)
    for number, path in enumerate(named):
        parse_value_path(path, f"{at}.{name}[{number}]")
    texts = [text for _, text in walk_unresolved(declared.get("args", {})) if isinstance(text, str)]
    used = {key for text in texts for key in find_placeholders(text)}
    if unused := [path for path in named if path not in used]:
        refuse(f"{at}.{name}", f"no argument has the placeholder {{{{{unused[0]}}}}}.")
    return tuple(dict.fromkeys(named))


def _read_message(
    action_id: str, declared: Mapping[str, Any], problems: Problems, consent: _Consent, title: str | None
) -> SendMessage:
    at, take = f"actions.{action_id}", problems.take
    message = take("", require_text, declared.get("message"), f"{at}.message", max_length=MAX_MESSAGE_LENGTH)
    return SendMessage(
        action_id=action_id,
        message=take("", parse_template, message, f"{at}.message"),
        session_key=take(None, _parse_session_key, declared["sessionKey"], f"{at}.sessionKey")
        if "sessionKey" in declared
        else None,
        save_target=take(None, _save_target, declared, at),
        confirm=consent.confirm,
        approval=consent.approval,
        timeout_ms=take(None, _timeout, declared, at),
        title=title,
        terms=_terms(declared),
    )


def _read_arguments(args: dict[str, Any], at: str, problems: Problems) -> Mapping[str, Any]:
    """Return the arguments with their templates and references parsed. CV-26, RS-66"""
    if len(args) == 1 and not NAMES.isdisjoint(args):
        problems.add(at, "must name the arguments; a reference stands for the value of one.")
        return {}
    return {name: problems.take(None, parse_templates, item, f"{at}.{name}") for name, item in args.items()}


def _read_patch(raw: Any, at: str, problems: Problems) -> Patch:
    """Return the operations with the references in their values parsed. CV-25, RS-66"""
    declared = problems.take(list[Any](), require_operations, raw, at)
    operations = [
        problems.take(None, _parse_operation, operation, f"{at}[{number}]")
        for number, operation in enumerate(declared)
    ]
    return tuple(operation for operation in operations if operation is not None)


def _parse_operation(raw: Any, at: str) -> Operation:
    operation = parse_operation(raw, at)
    if any(map(has_braces, operation.path)):
        advice = 'replace the whole list by `{"$value": "input.items"}`.'
        refuse(f"{at}.path", f"placeholders are not filled in a path; {advice}")
    value = parse_references(operation.value, f"{at}.value")
    if not operation.path and not isinstance(value, (dict, ValueRef)):
        refuse(f"{at}.value", "a state must be an object.")
    return replace(operation, value=value)


def parse_tool_name(value: Any, at: str) -> str:
    """Return the exact name of a tool, such as `server-a__Bash`. Raises `BadInput` for patterns. CV-40, X4"""
    if not isinstance(value, str) or not _TOOL.fullmatch(value):
        refuse(
            at,
            f"{quote_value(value)} is not a tool name; it must be exact, such as server-a__Bash,"
            " with letters, digits and . _ : - only.",
        )
    return value


def _parse_session_key(value: Any, at: str) -> str:
    """Return a session key, `agent:{agentId}:{name}` or `main`, without placeholders. CV-26, RS-67"""
    if not isinstance(value, str) or not (value == MAIN_ALIAS or is_session_key(value)):
        refuse(
            at,
            f"{quote_value(value)} is not a session key; it must be agent:{{agentId}}:{{name}}, or "
            f"`{MAIN_ALIAS}`.",
        )
    return value


def _save_target(declared: Mapping[str, Any], at: str) -> SaveTarget | None:
    if "saveAs" not in declared:
        for name in ("saveMode", "parse"):
            if name in declared:
                refuse(f"{at}.{name}", "needs saveAs.")
        return None
    mode = require_choice(declared.get("saveMode", SaveMode.REPLACE), SaveMode, f"{at}.saveMode")
    parse = require_choice(declared["parse"], Parse, f"{at}.parse") if "parse" in declared else None
    return SaveTarget(parse_path(declared["saveAs"], f"{at}.saveAs"), mode, parse)


def _timeout(declared: Mapping[str, Any], at: str) -> int | None:
    return (
        require_number(declared["timeoutMs"], f"{at}.timeoutMs", minimum=1, maximum=MAX_TIMEOUT_MS)
        if "timeoutMs" in declared
        else None
    )
