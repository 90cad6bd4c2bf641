"""The confirmation of an action: the work that a person confirms, and who may answer or cancel. CV-22, X6

Owns the stored form of resolved work: the same value is stored, shown to the person, and executed after the
approval.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from easel.core.action.execution import Execution, StartedRun
from easel.core.action.resolution import ResolvedCall, ResolvedMessage, find_shell_args
from easel.core.canvas.actions import Action, Approval, CallTool, SendMessage
from easel.core.principal import Principal, PrincipalKind
from easel.core.tool.context import UsedSecrets
from easel.core.tool.definition import ToolDefinition
from easel.core.values.fingerprint import fingerprint
from easel.core.values.patch import Patch, parse_patch, to_json_patch
from easel.errors import ConfirmationClosed

Work = ResolvedCall | ResolvedMessage | Patch  # the effect of a resolved action


@dataclass(frozen=True, slots=True)
class PendingReply:
    """Work of an adopted execution: wait for the run that another instance started before it stopped."""

    session_key: str
    run: StartedRun


# The members of a confirmation that are not terms of its action.
_RESOLVED = {"kind", "tool", "args", "sessionKey", "message", "patch", "secrets", "env", "texts"}
_WORK = _RESOLVED | {"shell", "hints", "because", "approval", "askedBy", "salt", "digest"}


def to_confirmation(
    work: Work,
    action: Action,
    salt: str,
    definition: ToolDefinition | None = None,
    *,
    because: str = "",
    asked_by: str | None = None,
) -> dict[str, Any]:
    """Return the JSON that a person confirms: the resolved work, the action's other members and a digest.

    `because` is the reason of the question, if it is not the action's own wish. `asked_by` is the person who
    asked for a call that another person must approve. RS-77

    The log has only the digest. The salt, which is random and not in the log, prevents that a value of the
    call is found from the digest by trying values. RS-64, RS-72
    """
    reason = {"because": because} if because else {}
    of_another = {} if asked_by is None else {"approval": Approval.ANOTHER.value, "askedBy": asked_by}
    described = {**_describe(work, definition), **action.terms, **of_another, **reason}
    confirmation = {**described, "salt": salt}
    return {**confirmation, "digest": fingerprint(confirmation)}


def _describe(work: Work, definition: ToolDefinition | None) -> dict[str, Any]:
    match work:
        case ResolvedCall(tool, args, session_key):
            call = {"kind": "tool.call", "tool": tool, "args": dict(args), "sessionKey": session_key}
            shell = {"shell": list(work.shell_args)} if work.shell_args else {}
            hints = {} if definition is None else {"hints": _hints(definition)}
            used = UsedSecrets(work.secrets, work.env, work.texts)
            return {**call, **shell, **hints, **used.to_stored()}
        case ResolvedMessage(session_key, text):
            return {"kind": "session.send", "sessionKey": session_key, "message": text}
        case _:
            return {"kind": "state.patch", "patch": to_json_patch(work)}


def _hints(tool: ToolDefinition) -> dict[str, bool]:
    return {"readOnly": tool.read_only, "idempotent": tool.idempotent, "destructive": tool.destructive}


def from_confirmation(resolved: Mapping[str, Any]) -> Work:
    """Return the work from the JSON that `to_confirmation` returned."""
    match resolved.get("kind"):
        case "tool.call":
            args = cast("Mapping[str, Any]", resolved["args"])
            used = UsedSecrets.from_stored(resolved)
            shell_args = tuple[str, ...](resolved.get("shell", ()))
            return ResolvedCall(
                resolved["tool"], args, resolved["sessionKey"], shell_args, used.args, used.env, used.texts
            )
        case "session.send":
            return ResolvedMessage(resolved["sessionKey"], resolved["message"])
        case _:
            return parse_patch(resolved.get("patch", []))


def has_same_terms(action: Action, resolved: Mapping[str, Any]) -> bool:
    """Return whether the action still has the terms that the confirmation shows, such as its time limit."""
    confirmed = {name: value for name, value in resolved.items() if name not in _WORK}
    env = list(action.secrets) if isinstance(action, CallTool) else []
    return confirmed == action.terms and env == resolved.get("env", [])


def check_same_tool(
    event_id: str, work: Work, resolved: Mapping[str, Any], definition: ToolDefinition
) -> None:
    """Raise `ConfirmationClosed` if the tool's hints, or the arguments that a shell reads, changed. RS-72"""
    if isinstance(work, ResolvedCall) and (
        work.shell_args != find_shell_args(work.args, definition)
        or resolved.get("hints") != _hints(definition)
    ):
        raise ConfirmationClosed(id=event_id, problem="the tool's definition has changed.")


def can_resume_waiting(action: Action | None, execution: Execution) -> TypeGuard[SendMessage]:
    """Return whether the action of an adopted execution still exists with the same terms. CV-43, X6"""
    return isinstance(action, SendMessage) and (
        execution.resolved is None or has_same_terms(action, execution.resolved)
    )


# --- who may answer -------------------------------------------------------------------------------


def may_confirm(principal: Principal) -> bool:
    """Return whether the principal may answer a confirmation: only people, never an agent. RS-59"""
    return principal.is_person


def may_cancel(principal: Principal) -> bool:
    """Return whether the principal may cancel executions: users and services, which may start them. RS-59"""
    return principal.kind in (PrincipalKind.USER, PrincipalKind.SERVICE)


def may_withdraw(principal: Principal, pending: Execution) -> bool:
    """Return whether the principal may withdraw a confirmation: a person, or the service that started it."""
    actor = pending.actor
    return principal.is_person or (
        may_cancel(principal)
        and (actor.get("kind"), actor.get("name")) == (principal.kind.value, principal.name)
    )
