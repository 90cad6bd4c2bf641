"""Values that no person wrote since the acceptance: who wrote which path of the state. RS-73"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.canvas.canvas import Change
from easel.core.canvas.unreviewed import MAX_PATHS, unreviewed_after
from easel.core.principal import Principal, PrincipalKind
from easel.core.stream.marker import make_marker
from tests.core.action.examples import ANN, canvas
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Mapping

AGENT = Principal(ANN.account_id, "main", kind=PrincipalKind.AGENT)
REFRESH = Principal(ANN.account_id, "refresh", kind=PrincipalKind.SERVICE)
BY_AGENT, BY_TOOL = "agent main", "the result of server-a__Read"
STATE: dict[str, Any] = {"id": "7", "job": {"host": "a", "port": 1}, "rows": [{"n": 1}, {"n": 2}]}


def after(
    known: Mapping[str, str], new: Mapping[str, Any] | None, principal: Principal, **change: Any
) -> Mapping[str, str]:
    before = replace(canvas(STATE).canvas, unreviewed=known)
    return unreviewed_after(before, Change(events=[], state=new, **change), principal)


@rule("RS-73")
@pytest.mark.parametrize(
    "new, found",
    [
        ({**STATE, "id": "8"}, {"/id": BY_AGENT}),
        ({**STATE, "job": {"host": "b", "port": 1}}, {"/job/host": BY_AGENT}),
        ({**STATE, "job": {"host": "b", "port": True}}, {"/job/host": BY_AGENT, "/job/port": BY_AGENT}),
        ({**STATE, "job": {"port": 1}}, {"/job/host": BY_AGENT}),
        ({**STATE, "job": "none"}, {"/job": BY_AGENT}),
        ({**STATE, "new": {"x": [1]}, "empty": {}}, {"/new/x": BY_AGENT, "/empty": BY_AGENT}),
        ({**STATE, "rows": [{"n": 1}]}, {"/rows": BY_AGENT}),
        ({**STATE, "rows": [{"n": 1}, {"n": 9}]}, {"/rows": BY_AGENT}),
        ({**STATE, "~redacted": True}, {"/redacted": BY_AGENT}),
        ({**STATE, "id": make_marker("long")[0]}, {"/id": BY_AGENT}),
        (dict(STATE), {}),
    ],
)
def test_write_by_an_agent_marks_the_paths_that_it_changes(
    new: dict[str, Any], found: dict[str, str]
) -> None:
    assert after({}, new, AGENT) == found


@rule("RS-73")
def test_service_counts_as_an_agent() -> None:
    assert after({}, {**STATE, "id": "8"}, REFRESH) == {"/id": "service refresh"}


@rule("RS-73")
@pytest.mark.parametrize(
    "known, new, left",
    [
        ({"/id": BY_AGENT}, {**STATE, "id": "8"}, {}),
        ({"/id": BY_AGENT}, {**STATE, "job": "x"}, {"/id": BY_AGENT}),
        ({"/job/host": BY_AGENT, "/job/port": BY_AGENT}, {**STATE, "job": "x"}, {}),
        ({"/job": BY_AGENT}, {**STATE, "job": {"host": "b", "port": 1}}, {"/job": BY_AGENT}),
        # Of an array that keeps a value of its former writer, a person has not written all.
        ({"/rows": BY_AGENT}, {**STATE, "rows": [{"n": 1}]}, {"/rows": BY_AGENT}),
        ({"/rows": BY_AGENT}, {**STATE, "rows": [{"n": 1}, {"n": 2}, {"n": 3}]}, {"/rows": BY_AGENT}),
        ({"/rows": BY_AGENT}, {**STATE, "rows": [{"n": 5}]}, {}),
        ({"/rows": BY_AGENT}, {**STATE, "rows": []}, {}),
    ],
)
def test_write_by_a_person_clears_a_path_and_all_below_it(
    known: dict[str, str], new: dict[str, Any], left: dict[str, str]
) -> None:
    assert after(known, new, ANN) == left


@rule("RS-73")
def test_result_of_a_tool_is_not_of_the_person_who_pressed() -> None:
    saved = {**STATE, "job": {"ok": True, "result": "x"}}
    assert set(after({}, saved, ANN, authors={"/job": BY_TOOL}).values()) == {BY_TOOL}
    # The other values of such a change are those of the accepted spec.
    assert after({"/id": BY_AGENT}, {**STATE, "id": "1"}, REFRESH, authors={"/job": BY_TOOL}) == {}


@rule("RS-73")
def test_acceptance_by_a_person_clears_all_but_a_restored_version_does_not() -> None:
    known = {"/id": BY_AGENT}
    assert after(known, None, ANN, is_accepted=True) == {}
    assert after(known, None, ANN, is_accepted=True, restored_version=1) == known
    assert after(known, {**STATE, "id": "8"}, AGENT, is_accepted=False) == known


@rule("RS-73")
def test_many_paths_become_their_parents() -> None:
    wide = {"job": {f"n{number}": {"x": number} for number in range(MAX_PATHS + 1)}}
    few = {f"n{number}" * 100: number for number in range(3)}
    assert after({}, {**STATE, **wide, "id": "8"}, AGENT) == {
        "/job": BY_AGENT,
        "/id": BY_AGENT,
    }
    assert after({}, {**STATE, "few": few}, AGENT) == {f"/few/{name}": BY_AGENT for name in few}
    assert after({}, {**STATE, "x" * 600: 1}, AGENT) == {"": BY_AGENT}
