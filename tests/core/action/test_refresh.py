"""Which actions a refresh may run: whether the spec is accepted, and whether the job starts when it
is due.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.action.execution import ExecutionStatus
from easel.core.action.policy import check_templates
from easel.core.canvas.actions import Confirm
from easel.core.canvas.spec import parse_spec
from easel.errors import BadInput, Forbidden, Unavailable
from tests.core.action.examples import RULES, canvas, start
from tests.core.canvas.specs import READ, TOOLS
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.canvas.canvas import CanvasSnapshot
    from easel.errors import HostError

READS = {"kind": "tool.call", "tool": "server-a__Read"}
RUNS = {"kind": "tool.call", "tool": "server-a__Bash", "args": {"command": "date"}}
GONE = {"kind": "tool.call", "tool": "gone__Tool"}


def canvas_with_refresh(action: dict[str, Any], *, accepted: bool = True) -> CanvasSnapshot:
    return canvas(
        accepted=accepted,
        actions={"act": action},
        toolPolicy={"allow": ["server-a__Bash", "server-a__Read", "gone__Tool"]},
        refresh=[{"id": "r", "everyMs": 1000, "action": "act"}],
        bindings=...,
    )


JOBS = [
    # case                               action                          accepted  stored   starts, or why not
    ("a tool that reads",                READS,                          True,     True,    None),
    ("one that an agent declared",       READS,                          False,    True,    None),
    ("a tool that does more",            RUNS,                           True,     False,   Forbidden),
    ("one without confirmation",             {**RUNS, "confirm": "never"},   True,     True,    None),
    ("that one, not accepted",           {**RUNS, "confirm": "never"},   False,    True,    Forbidden),
    ("one that always asks",             {**READS, "confirm": "always"}, True,     False,   Forbidden),
    ("an unknown tool",                  GONE,                           True,     True,    Unavailable),
    ("an unknown tool that always asks", {**GONE, "confirm": "always"},  True,     False,   Unavailable),
    ("a patch of the state",             {"kind": "state.patch", "patch": []}, True,  True, None),
    ("the same, not accepted",           {"kind": "state.patch", "patch": []}, False, True, Forbidden),
]  # fmt: skip


@rule("RS-45", "RS-59", "CV-41")
@pytest.mark.parametrize(
    "action, accepted, stored, problem", [row[1:] for row in JOBS], ids=[row[0] for row in JOBS]
)
def test_refresh_runs_only_actions_without_confirmation(
    action: dict[str, Any], accepted: bool, stored: bool, problem: type[HostError] | None
) -> None:
    snapshot = canvas_with_refresh(action, accepted=accepted)
    if stored:
        check_templates(parse_spec(snapshot.canvas.spec), TOOLS)
    else:
        with pytest.raises(BadInput, match=r"refresh\[0\]\.action: `act` needs confirmation by a person"):
            check_templates(parse_spec(snapshot.canvas.spec), TOOLS)
    if problem is None:
        assert start(snapshot, "act", is_attended=False).execution.status in (
            ExecutionStatus.RUNNING,
            ExecutionStatus.COMPLETED,
        )
    else:
        with pytest.raises(problem):
            start(snapshot, "act", is_attended=False)


@rule("RS-59")
def test_refused_refresh_says_that_the_spec_is_not_accepted() -> None:
    snapshot = canvas_with_refresh({**RUNS, "confirm": "never"}, accepted=False)
    with pytest.raises(
        Forbidden, match=r"a person must confirm `act`.* No person has accepted this spec yet"
    ):
        start(snapshot, "act", is_attended=False)


@rule("RS-45", "RS-14")
def test_refresh_does_not_run_after_its_action_came_to_need_confirmation() -> None:
    snapshot = canvas_with_refresh(READS)
    changed = replace(RULES, definitions={"server-a__Read": replace(READ, read_only=False)})
    for rules in (changed, replace(RULES, floor=Confirm.ALWAYS)):
        with pytest.raises(Forbidden, match=r"a person must confirm `act`, so a refresh cannot run it\.$"):
            start(snapshot, "act", rules, is_attended=False)
    with pytest.raises(BadInput, match=r"by a person on this server \(EASEL_APPROVAL_MODE\)"):
        check_templates(parse_spec(snapshot.canvas.spec), TOOLS, floor=Confirm.ALWAYS)
