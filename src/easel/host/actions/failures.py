"""The errors of failed executions: as callers get them, now and from the store. CV-42"""

from typing import Any

from easel.core.action.execution import Execution
from easel.core.run.deltas import shorten
from easel.errors import ActionFailed, HostError, Unavailable, by_code
from easel.host.audit.audit import Audit


def public_message(audit: Audit, problem: HostError) -> str:
    """Return the message of an error with secrets redacted, shortened to fit into an event."""
    return shorten(audit.redact(problem.message))


def error_of(execution: Execution, problem: HostError, message: str) -> HostError:
    """Return the error for the caller, with the id of the execution."""
    details = {name: value for name, value in problem.details.items() if name not in ("problem", "reason")}
    error = type(problem).with_message(message, **details, eventId=execution.event_id)
    error.retry_after = problem.retry_after
    return error


def stored_error(execution: Execution, answer: Any) -> HostError:
    """Return the error that is stored in the answer of a failed execution."""
    kind = by_code(answer["error"]["name"], ActionFailed)
    return kind.with_message(answer["error"]["message"], eventId=execution.event_id)


def result_not_stored(problem: Unavailable) -> ActionFailed:
    """Return the failure of an execution whose tool ran but whose result was not stored.

    The failure is not `Unavailable`, because a retry by the caller would run the tool twice.
    """
    result = (
        "it is not known whether its result is stored"
        if "mayBeStored" in problem.details
        else "its result could not be stored"
    )
    return ActionFailed(
        problem=f"The tool has done its work; {result}: {problem.details['what']} was unavailable."
    )
