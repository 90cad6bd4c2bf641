"""The confirmation of an action: the work that a person confirms, and who may answer or cancel. CV-22, X6

Owns the stored form of resolved work: the same value is stored, shown to the person, and executed after the
approval.
"""

from collections.abc import Mapping
from typing import Any, TypeGuard, cast

from easel.core.action.resolution import Message, ResolvedCall, find_shell_args
from easel.core.canvas.actions import Action, CallTool, PatchState, SendMessage
from easel.core.canvas.execution import Execution
from easel.core.principal import Principal, PrincipalKind
from easel.core.tool.context import UsedSecrets
from easel.core.tool.definition import ToolDefinition
from easel.core.values.fingerprint import fingerprint
from easel.core.values.patch import Patch, parse_patch, to_json_patch
from easel.errors import ConfirmationClosed

Work = ResolvedCall | Message | Patch  # the effect of a resolved action


def to_confirmation(work: Work, action: Action, salt: str) -> dict[str, Any]:
    """Return the JSON that a person confirms: the resolved work, its session, its save target and its digest.

    The log has only the digest. The salt, which is random and not in the log, prevents that a value of the
    call is found from the digest by trying values.
    """
    confirmation = {**_describe(work, action), "salt": salt}
    return {**confirmation, "digest": fingerprint(confirmation)}


def _describe(work: Work, action: Action) -> dict[str, Any]:
    match work:
        case ResolvedCall(tool, args, session_key):
            shell = {"shell": list(work.shell_args)} if work.shell_args else {}
            call = {
                "kind": "tool.call",
                "tool": tool,
                "args": dict(args),
                "sessionKey": session_key,
            }
            return {
                **call,
                **shell,
                **UsedSecrets(work.secrets, work.env, work.texts).to_stored(),
                **_terms(action),
            }
        case Message(session_key, text):
            message = {"kind": "session.send", "sessionKey": session_key, "message": text}
            return {**message, **_terms(action)}
        case _:
            return {"kind": "state.patch", "patch": to_json_patch(work)}


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
            return Message(resolved["sessionKey"], resolved["message"])
        case _:
            return parse_patch(resolved.get("patch", []))


def has_same_terms(action: Action, resolved: Mapping[str, Any]) -> bool:
    """Return whether the action still has the terms that the confirmation shows, such as its time limit."""
    names = ("saveAs", "saveMode", "timeoutMs", "env")
    confirmed = {name: resolved[name] for name in names if name in resolved}
    return _terms(action) == confirmed


def _terms(action: Action) -> dict[str, Any]:
    """Return the parts of an action that are confirmed with its work. RS-64, RS-66"""
    if isinstance(action, PatchState):
        return {}
    target = action.save_target
    saved = {"saveAs": ".".join(target.path), "saveMode": target.mode.value} if target else {}
    variables = {"env": list(action.secrets)} if isinstance(action, CallTool) and action.secrets else {}
    return {**saved, **({"timeoutMs": action.timeout_ms} if action.timeout_ms else {}), **variables}


def check_same_shell_args(event_id: str, work: Work, definition: ToolDefinition) -> None:
    """Raise `ConfirmationClosed` if a shell reads other arguments now than those confirmed as commands. RS-45

    This happens if the tool's definition has changed.
    """
    if isinstance(work, ResolvedCall) and work.shell_args != find_shell_args(work.args, definition):
        raise ConfirmationClosed(id=event_id, problem="the tool's definition has changed.")


def can_resume_waiting(action: Action | None, execution: Execution) -> TypeGuard[SendMessage]:
    """Return whether the action of an adopted execution still exists with the same terms. CV-43, X6"""
    return isinstance(action, SendMessage) and (
        execution.resolved is None or has_same_terms(action, execution.resolved)
    )


# --- who may answer -------------------------------------------------------------------------------


def may_confirm(principal: Principal) -> bool:
    """Return whether the principal may answer a confirmation: only people, never an agent. RS-59"""
    return principal.kind is PrincipalKind.USER


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
