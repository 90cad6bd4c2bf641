"""How an execution ends before its tool does: somebody stops it, or nobody has agreed to it in time.

Owns who may stop what, and what is told of a question that nobody answered. That each end is the only one is the store's to see to:
every step leads out of one status.
"""

from collections.abc import Callable
from dataclasses import replace

from easel.core.canvas.canvas import CanvasSnapshot, Change
from easel.core.canvas.events import CanvasEvents
from easel.core.canvas.execution import Execution, ExecutionStatus, Transition
from easel.core.principal import Principal, PrincipalKind

NOBODY = "Nobody answered in time."


def may_stop(principal: Principal) -> bool:
    """Whoever may press a button. An agent presses none, so it stops nothing either; a node offers tools and nothing else. RS-59"""
    return principal.kind in (PrincipalKind.USER, PrincipalKind.SERVICE)


def may_withdraw(principal: Principal, asked: Execution) -> bool:
    """A person, who could refuse it as well; or the program whose question it is."""
    return principal.is_person or (
        may_stop(principal)
        and (asked.actor.get("kind"), asked.actor.get("name")) == (principal.kind.value, principal.name)
    )


def lapsed(execution: Execution, now_ms: int) -> Callable[[CanvasSnapshot], Change]:
    """A question that nobody answered: as if it had been refused, but by nobody. CV-22"""
    over = replace(execution, status=ExecutionStatus.REFUSED)
    events = CanvasEvents(
        over.canvas_id, agent_id=over.user_id, event_id=over.event_id, node_id=over.action_id
    )
    told = {**over.named, "endedAt": now_ms, "reason": NOBODY}
    step = Transition(over, from_status=ExecutionStatus.ASKED)
    return lambda snapshot: Change(
        events=[events.action("refused", snapshot.canvas.revision, told)], is_mutation=False, transition=step
    )
