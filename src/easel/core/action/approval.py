"""Approval by another person than the one who asked for a call. RS-77

Owns which calls need it, and who may give it. Does not know who the members of an account are.
"""

from easel.core.action.execution import Execution, asker_of
from easel.core.canvas.actions import Action, Approval, Confirm
from easel.core.canvas.canvas import Canvas
from easel.core.principal import Principal, is_shared
from easel.core.validation import refuse
from easel.errors import ActionFailed, Forbidden


class UnknownApprovers(Exception):
    """The decision needs to know whether another member may approve: read it, and decide again."""


def refuse_another(action: Action, at: str) -> None:
    """Refuse an action that another person must approve: its account has only one person."""
    if action.approval is Approval.ANOTHER:
        refuse(at, "cannot be `another` in your own account: there is no other person. It is for teams.")


def needs_another(canvas: Canvas, action: Action, approval_by: Approval = Approval.ANYONE) -> bool:
    """Return whether another person must approve the call: by its action, or by the setting of the team.

    A spec that is not accepted yet cannot take it back: the accepted one counts too.
    """
    is_guarded = action.approval is Approval.ANOTHER or action.action_id in canvas.consent.approvals
    return is_guarded or approval_by is Approval.ANOTHER


def at_least_auto(floor: Confirm, approval_by: Approval, principal: Principal) -> Confirm:
    """Return the floor of a call: in a team whose setting is `another`, `never` counts as `auto`.

    Else one member could write, and thereby accept, `confirm: never` alone.
    """
    is_raised = approval_by is Approval.ANOTHER and floor is Confirm.NEVER and is_shared(principal)
    return Confirm.AUTO if is_raised else floor


def require_gesture(action_id: str, *, has_gesture: bool) -> None:
    """Raise `Forbidden` if the code of a page asks, in the name of whoever opened it.

    Else the author of the page could approve what the page asked for.
    """
    if not has_gesture:
        raise Forbidden(
            problem=f"another person must approve `{action_id}`, and the page asked without a click or key "
            "press of yours; press it yourself."
        )


def require_other_approver(action_id: str, has_other: bool | None) -> None:
    """Raise `ActionFailed` if no other member may approve: the question would never be answered."""
    if has_other is None:
        raise UnknownApprovers
    if not has_other:
        raise ActionFailed(
            problem=f"another person must approve `{action_id}`, and this team has no other member who may; "
            "an admin can add one."
        )


def check_approver(
    canvas: Canvas, action: Action | None, pending: Execution, principal: Principal, approval_by: Approval
) -> None:
    """Raise `Forbidden` if the person who asked, or answers for the program that did, approves the call.

    What was asked of another person stays so, whatever the spec and the setting say by now.
    """
    was_asked = (pending.resolved or {}).get("approval") == Approval.ANOTHER
    is_needed = was_asked or (
        action is not None and needs_another(canvas, action, approval_by) and is_shared(principal)
    )
    if is_needed and principal.responsible in (None, asker_of(pending)):
        raise Forbidden(problem="you asked for this call, so another person must approve it.")
