"""The start of an execution: the order of the checks, confirmation, and failures at the start. No store, tool
or clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.action.confirmation import from_confirmation, may_confirm, to_confirmation
from easel.core.action.ending import reject_execution
from easel.core.action.execution import (
    EXECUTION_STARTS,
    EXECUTION_TRANSITIONS,
    TERMINAL,
    ExecutionStatus,
    Transition,
)
from easel.core.action.resolution import ResolvedCall, ResolvedMessage
from easel.core.canvas.actions import Confirm
from easel.core.principal import PrincipalKind
from easel.core.tool.definition import ToolDefinition
from easel.core.values.patch import parse_patch
from easel.errors import (
    BadInput,
    ConfirmationClosed,
    Forbidden,
    HostError,
    NotFound,
    RevisionConflict,
    TooLarge,
    Unavailable,
)
from tests.core.action.examples import (
    ACTS,
    ANN,
    NOW,
    READS,
    RULES,
    STATE,
    approve,
    canvas,
    canvas_with_actions,
    event_types,
    events,
    start,
)
from tests.core.canvas.specs import BASH, BASH_SCHEMA, TOOLS, example
from tests.requirements import case, rule
from tests.support.actions import parse_action

UNKNOWN_TOOLS = replace(RULES, definitions=Unavailable(what="The database"))


# --- the table of transitions ---------------------------------------------------------------------


@rule("CV-42")
def test_every_status_is_reached_and_exactly_the_terminal_ones_are_final() -> None:
    reached = {status for moves in EXECUTION_TRANSITIONS.values() for status in moves.values()}
    assert reached | set(EXECUTION_STARTS.values()) == set(ExecutionStatus) == set(EXECUTION_TRANSITIONS)
    assert [status for status in ExecutionStatus if not status.is_terminal] == [
        ExecutionStatus.ASKED,
        ExecutionStatus.RUNNING,
    ]
    assert all(not EXECUTION_TRANSITIONS[status] for status in TERMINAL)


@rule("CV-23", "CV-42")
@pytest.mark.parametrize("status", [*ExecutionStatus])
@pytest.mark.parametrize("from_status", [None, *ExecutionStatus])
def test_transition_that_is_not_in_the_table_cannot_be_built(
    from_status: ExecutionStatus | None, status: ExecutionStatus
) -> None:
    moves = EXECUTION_STARTS if from_status is None else EXECUTION_TRANSITIONS[from_status]
    execution = replace(start(canvas_with_actions(read=READS), "read").execution, status=status)
    if status in moves.values():
        assert Transition(execution, from_status).from_status is from_status
    else:
        with pytest.raises(ValueError, match="must not go"):
            Transition(execution, from_status)


# --- the order of the checks ----------------------------------------------------------------------


@rule("CV-45")
def test_wrong_revision_is_refused_before_any_other_check() -> None:
    with pytest.raises(RevisionConflict) as conflict:
        start(canvas(), "no such action", expected_revision=6)
    assert conflict.value.details["currentRevision"] == 7
    assert start(canvas(), "assistantPlan", expected_revision=7).execution.status is ExecutionStatus.RUNNING


@rule("CV-36", "CV-40", "CV-41")
@case("X5")
def test_action_that_is_not_allowed_is_refused_before_its_tool_is_needed() -> None:
    snapshot = canvas(toolPolicy={"allow": []}, refresh=...)
    with pytest.raises(Forbidden):
        start(snapshot, "deploy", UNKNOWN_TOOLS)
    with pytest.raises(NotFound):
        start(snapshot, "__proto__", UNKNOWN_TOOLS)
    with pytest.raises(NotFound) as long:
        start(snapshot, "x" * 100_000, UNKNOWN_TOOLS)
    assert len(long.value.message) < 300


@rule("CV-03", "RS-45")
def test_only_a_tool_call_needs_the_tool_definitions() -> None:
    with pytest.raises(Unavailable, match="The database"):
        start(canvas(), "refreshLogs", UNKNOWN_TOOLS)
    assert start(canvas(), "assistantPlan", UNKNOWN_TOOLS).work == ResolvedMessage(
        "agent:ops:main", "Given current rollout state, propose next safe steps and risks."
    )
    patched = start(canvas({"status": "x"}), "setDeploying", UNKNOWN_TOOLS)
    assert patched.execution.status is ExecutionStatus.COMPLETED


@rule("RS-67")
def test_message_to_main_goes_to_the_main_session_of_the_agent() -> None:
    sends = {"kind": "session.send", "message": "Hi", "sessionKey": "main"}
    started = start(canvas(actions={"say": sends}, refresh=..., bindings=...), "say", UNKNOWN_TOOLS)
    assert started.work == ResolvedMessage("agent:ops:main", "Hi")


# --- starting -------------------------------------------------------------------------------------


@rule("CV-38", "RS-33", "CV-48")
def test_start_is_logged_with_actor_tool_and_time_and_changes_nothing_else() -> None:
    started = start(canvas_with_actions(read=READS), "read", request_id="r1")
    [(event_type, data)] = events(started)
    assert event_type == "canvas.action.started"
    assert {
        "canvasId": "cockpit",
        "revision": 7,
        "actionId": "read",
        "eventId": "evt_1",
        "startedAt": NOW,
    }.items() <= data.items()
    assert data["actor"] == {
        "accountId": "ann",
        "userId": "ann",
        "kind": "user",
        "name": "Ann",
        "clientId": "laptop",
        "trigger": "client",
    }
    assert data["tool"] == "server-a__Read"
    assert data["provenance"] == {
        "kind": "person",
        "agent_id": "ann",
        "node_id": "read",
        "run_id": "evt_1",
    }
    assert (started.is_mutation, started.state) == (False, None)
    transition = started.transition
    assert (transition.from_status, transition.execution) == (None, started.execution)
    assert (started.execution.owner_id, started.execution.request_id, started.execution.tool) == (
        "ins_1",
        "r1",
        "server-a__Read",
    )
    assert started.work == ResolvedCall("server-a__Read", {"path": "api"}, "agent:ops:main")


@rule("CV-25", "CV-39", "CV-37")
def test_state_patch_starts_and_completes_in_one_change() -> None:
    started = start(
        canvas_with_actions(
            set={"kind": "state.patch", "patch": [{"op": "add", "path": "/list/-", "value": 2}]}
        ),
        "set",
    )
    assert event_types(started) == ["action.started", "updated", "action.finished"]
    first, updated, finished = [data for _, data in events(started)]
    assert (first["revision"], updated["revision"], finished["revision"]) == (7, 8, 8)
    assert updated["changedPaths"] == ["/list/1"]
    assert finished["endedAt"] == NOW
    assert started.state is not None
    assert started.state["list"] == [1, 2]
    assert started.execution.status is ExecutionStatus.COMPLETED


@rule("CV-44")
def test_empty_patch_is_no_mutation() -> None:
    started = start(canvas_with_actions(set={"kind": "state.patch", "patch": []}), "set")
    assert event_types(started) == ["action.started", "action.finished"]
    assert (started.is_mutation, started.state) == (False, None)


LARGE = "y" * 200_000


def patching(operation: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "state.patch", "patch": [operation]}


UNRESOLVABLE = [
    # case                              problem      action
    ("a tool that does not exist",      Unavailable, {**READS, "tool": "gone__Tool"}),
    ("a missing value in a command",    BadInput,    {**ACTS, "confirm": "never"}),
    ("no array to append to",           BadInput,    {**READS, "saveAs": "text", "saveMode": "append"}),
    ("no object to merge into",         BadInput,    {**READS, "saveAs": "list", "saveMode": "merge"}),
    ("text on the path of saveAs",      BadInput,    {**READS, "saveAs": "text.inner"}),
    ("a patch that does not fit",       BadInput,    patching({"op": "remove", "path": "/none"})),
    ("a state that grows too large",    TooLarge,    patching({"op": "add", "path": "/x", "value": LARGE})),
    ("a message that grows too large",  TooLarge,   {"kind": "session.send", "message": "{{input.to}}" * 30}),
]  # fmt: skip


@rule("CV-42", "CV-48", "RS-45", "RS-57", "CV-25")
@pytest.mark.parametrize(
    "why, action", [row[1:] for row in UNRESOLVABLE], ids=[row[0] for row in UNRESOLVABLE]
)
def test_allowed_action_that_cannot_be_resolved_is_recorded_as_failed(
    action: dict[str, Any], why: type[HostError]
) -> None:
    snapshot = canvas(
        actions={"act": action},
        toolPolicy={"allow": ["server-a__Bash", "server-a__Read", "gone__Tool"]},
        refresh=...,
        bindings=...,
    )
    values = {"to": "z" * 50_000} if why is TooLarge else {}
    started = start(snapshot, "act", input=values)
    assert isinstance(started.problem, why)
    assert event_types(started) == ["action.started", "action.failed"]
    (_, first), (_, ended) = events(started)
    assert first["startedAt"] == ended["endedAt"] == NOW
    assert ended["error"] == {"code": why.gateway, "name": why.code, "message": f"<{why.code}>"}
    assert (started.is_mutation, started.state) == (False, None)
    assert (started.transition.from_status, started.execution.status) == (None, ExecutionStatus.FAILED)


# --- confirmation ---------------------------------------------------------------------------------


@rule("CV-22", "RS-13")
def test_confirmation_shows_the_resolved_call_and_starts_nothing() -> None:
    bash = replace(BASH, schema={**BASH_SCHEMA, "x-secrets": True})
    rules = replace(RULES, definitions={**TOOLS, BASH.name: bash})
    snapshot = canvas_with_actions(act={**ACTS, "text": ["input.to"]})
    started = start(snapshot, "act", rules, input={"to": "it's"})
    [(event_type, data)] = events(started)
    assert event_type == "canvas.action.asked"
    assert started.execution.resolved == {
        "kind": "tool.call",
        "tool": "server-a__Bash",
        "args": {"command": './deploy api "${EASEL_TEXT_1}"'},
        "sessionKey": "agent:ops:main",
        "shell": [".command"],
        "hints": {"readOnly": False, "idempotent": False, "destructive": True},
        "texts": {"EASEL_TEXT_1": "it's"},
        "text": ["input.to"],
        "salt": "",
        "digest": data["digest"],
    }
    assert data["confirmationId"] == "evt_1"
    assert started.execution.status is ExecutionStatus.ASKED
    assert started.execution.owner_id is None
    assert not started.is_mutation
    assert approve(snapshot, started.execution, rules).work == started.work


@rule("RS-71", "RS-59")
def test_argument_counts_as_data_only_when_a_person_has_accepted_that() -> None:
    policy = {**example()["toolPolicy"], "data": {"server-a__Bash": ["workdir"]}}
    act = {**ACTS, "args": {"command": "ls", "workdir": "{{input.to}}"}}
    spec: dict[str, Any] = {"actions": {"act": act}, "refresh": ..., "bindings": ..., "toolPolicy": policy}
    accepted = start(canvas(**spec), "act", input={"to": "a b"})
    assert accepted.execution.status is ExecutionStatus.ASKED
    unaccepted = start(canvas(accepted=False, **spec), "act", input={"to": "a b"})
    assert unaccepted.execution.status is ExecutionStatus.FAILED
    assert '"toolPolicy": {"data": …}' in str(unaccepted.problem)


@rule("CV-22")
def test_log_has_only_a_salted_digest_of_the_call_to_confirm() -> None:
    canvas = canvas_with_actions(act=ACTS)
    first, repeated, salted = (
        start(canvas, "act", input={"to": "hunter2"}, salt=salt) for salt in ("a", "a", "b")
    )
    [(_, data)] = events(first)
    assert "resolved" not in data
    assert "hunter2" not in str(data)
    assert data["digest"] == events(repeated)[0][1]["digest"]
    assert data["digest"] != events(salted)[0][1]["digest"], "so that no value can be guessed"


@rule("RS-14", "RS-59", "CV-41")
@pytest.mark.parametrize(
    "floor, accepted, asks",
    [(Confirm.NEVER, True, False), (Confirm.ALWAYS, True, True), (Confirm.NEVER, False, True)],
)
def test_server_floor_and_unaccepted_spec_raise_the_confirmation_level(
    floor: Confirm, accepted: bool, asks: bool
) -> None:
    snapshot = canvas(
        accepted=accepted, actions={"act": {**ACTS, "confirm": "never"}}, refresh=..., bindings=...
    )
    started = start(snapshot, "act", replace(RULES, floor=floor), input={"to": "a"})
    assert (started.execution.status is ExecutionStatus.ASKED) is asks


@rule("RS-59")
@pytest.mark.parametrize("confirm", ["never", "auto", "always"])
@pytest.mark.parametrize("key", [{}, {"sessionKey": "agent:ops:main"}, {"sessionKey": "agent:main:another"}])
def test_unaccepted_spec_sends_no_message_without_confirmation(key: dict[str, str], confirm: str) -> None:
    """A message starts an agent run, so neither an agent's canvas nor a refresh may send one unconfirmed."""
    sends = {"kind": "session.send", "message": "cat secret.txt", "confirm": confirm, **key}
    unaccepted = canvas(accepted=False, actions={"say": sends}, refresh=..., bindings=...)
    pending = start(unaccepted, "say")
    assert pending.execution.status is ExecutionStatus.ASKED
    assert pending.execution.resolved is not None
    assert pending.execution.resolved["sessionKey"] == key.get("sessionKey", "agent:ops:main")
    with pytest.raises(Forbidden, match="a refresh cannot run it"):
        start(unaccepted, "say", is_attended=False)
    accepted = canvas(actions={"say": sends}, refresh=..., bindings=...)
    assert (start(accepted, "say").execution.status is ExecutionStatus.ASKED) is (confirm == "always")


@rule("CV-41", "RS-45")
def test_refresh_cannot_run_an_action_that_needs_confirmation() -> None:
    with pytest.raises(Forbidden, match="a refresh cannot run it"):
        start(canvas_with_actions(act=ACTS), "act", input={"to": "a"}, is_attended=False)
    with pytest.raises(Unavailable):
        start(canvas_with_actions(read=READS), "read", replace(RULES, definitions={}), is_attended=False)
    assert (
        start(canvas_with_actions(read=READS), "read", is_attended=False).execution.status
        is ExecutionStatus.RUNNING
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PATCHES = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "replace"]),
            "path": st.sampled_from(["/a", "/b~1c/0", "/~0/-"]),
            "value": JSON,
        }
    )
    | st.fixed_dictionaries({"op": st.just("remove"), "path": st.just("/a")}),
    max_size=4,
)


@rule("CV-22")
@case("X6")
@given(
    st.builds(
        ResolvedCall,
        st.just("server-a__Bash"),
        st.dictionaries(st.text(max_size=5), JSON, max_size=3),
        st.just("agent:ops:main"),
        st.sampled_from([(), (".command", ".steps[0]")]),
    )
    | st.builds(ResolvedMessage, st.just("agent:ops:main"), st.text())
    | PATCHES.map(parse_patch)
)
def test_confirmed_work_is_the_work_that_runs(work: Any) -> None:
    saves = parse_action("act", {**ACTS, "saveAs": "out", "saveMode": "append"})
    stored = msgspec.json.decode(msgspec.json.encode(to_confirmation(work, saves, "salt")))
    assert from_confirmation(stored) == work


@case("X6")
def test_different_calls_have_different_digests() -> None:
    def digest_of(work: ResolvedCall) -> str:
        return to_confirmation(work, parse_action("act", ACTS), "salt")["digest"]

    call = ResolvedCall("t", {"a": 1, "b": [2]}, "agent:ops:main")
    assert digest_of(call) == digest_of(ResolvedCall("t", {"b": [2], "a": 1}, "agent:ops:main"))
    others = [
        ResolvedCall("u", call.args, call.session_key),
        ResolvedCall("t", {"a": "1", "b": [2]}, call.session_key),
        ResolvedCall("t", {"a": 1, "b": [2], "c": None}, call.session_key),
        ResolvedCall("t", call.args, "agent:ops:other"),
        ResolvedCall("t", call.args, call.session_key, (".a",)),
    ]
    assert len({digest_of(call), *map(digest_of, others)}) == 6


@rule("RS-45", "RS-16")
@case("X6")
def test_argument_confirmed_as_text_is_not_passed_to_a_shell_after_the_definition_changed() -> None:
    echo = ToolDefinition("server-a__Bash", "", {"properties": {"command": {"x-shell": False}}})
    snapshot = canvas_with_actions(act={**ACTS, "args": {"command": "{{input.to}}"}})
    pending = start(
        snapshot, "act", replace(RULES, definitions={"server-a__Bash": echo}), input={"to": "x; rm -rf /"}
    )
    with pytest.raises(ConfirmationClosed, match="definition has changed"):
        approve(snapshot, pending.execution)


@rule("RS-72", "RS-45")
@case("X6")
@pytest.mark.parametrize("hint", ["read_only", "idempotent", "destructive"])
@pytest.mark.parametrize("before", [True, False])
def test_question_is_closed_if_any_hint_of_its_tool_has_changed(hint: str, *, before: bool) -> None:
    tool = replace(TOOLS["server-a__Bash"], **{hint: before})
    changed = replace(tool, **{hint: not before})
    snapshot = canvas_with_actions(act={**ACTS, "confirm": "always"})
    pending = start(snapshot, "act", replace(RULES, definitions={tool.name: tool}), input={"to": "x"})
    with pytest.raises(ConfirmationClosed, match="definition has changed"):
        approve(snapshot, pending.execution, replace(RULES, definitions={tool.name: changed}))


@rule("RS-72")
def test_confirmation_has_every_other_member_of_its_action_as_declared() -> None:
    terms = {
        "title": "Go",
        "description": "",
        "confirm": "always",
        "missing": "empty",
        "allowOptions": ["input.to"],
    }
    terms |= {"saveAs": "out", "saveMode": "append", "timeoutMs": 1_000}
    resolved = start(canvas_with_actions(act={**ACTS, **terms}), "act", input={"to": "x"}).execution.resolved
    assert resolved is not None
    assert {name: resolved[name] for name in terms} == terms


def acting(action: dict[str, Any]) -> dict[str, Any]:
    return {"actions": {"act": action}}


APPROVED: list[tuple[str, type[HostError] | None, dict[str, Any]]] = [
    # case                               refused with         the spec after the confirmation was asked for
    ("nothing has changed",              None,                {}),
    ("other arguments",                  None,               acting({**ACTS, "args": {"command": "rm -rf"}})),
    ("another place for the result",     ConfirmationClosed,  acting({**ACTS, "saveAs": "out"})),
    ("another time limit",               ConfirmationClosed,  acting({**ACTS, "timeoutMs": 1})),
    ("another answer to missing values", ConfirmationClosed,  acting({**ACTS, "missing": "empty"})),
    ("options are allowed",              ConfirmationClosed,  acting({**ACTS, "allowOptions": ["input.to"]})),
    ("another tool",                     ConfirmationClosed,  acting(READS)),
    ("another kind",                     ConfirmationClosed,  acting({"kind": "state.patch", "patch": []})),
    ("no such action",                   ConfirmationClosed,  {"actions": {"other": ACTS}}),
    ("the tool is no longer allowed",    Forbidden,           {"toolPolicy": {"allow": ["server-a__Read"]}}),
]  # fmt: skip


@rule("CV-22", "CV-40", "CV-41", "RS-64")
@case("X6")
@pytest.mark.parametrize("problem, changes", [row[1:] for row in APPROVED], ids=[row[0] for row in APPROVED])
def test_approved_call_runs_as_confirmed_or_not_at_all(
    changes: dict[str, Any], problem: type[HostError] | None
) -> None:
    pending = start(canvas_with_actions(act=ACTS), "act", input={"to": "live"})
    later = canvas(
        {**STATE, "service": "other"},
        **{"actions": {"act": ACTS}, "refresh": ..., "bindings": ...} | changes,
    )
    # The session was confirmed too, so a new owner of the canvas changes nothing.
    later = replace(later, canvas=replace(later.canvas, owner_session_key="agent:evil:main"))
    if problem is not None:
        with pytest.raises(problem):
            approve(later, pending.execution)
        return
    started = approve(later, pending.execution)
    assert (
        started.work
        == pending.work
        == ResolvedCall("server-a__Bash", {"command": "./deploy api live"}, "agent:ops:main", (".command",))
    )
    assert event_types(started) == ["action.started"]
    transition = started.transition
    assert transition.from_status is ExecutionStatus.ASKED
    execution = transition.execution
    assert (execution.event_id, execution.confirmed_by, execution.owner_id) == (
        "evt_1",
        "Ann",
        "ins_2",
    )


@rule("RS-45")
def test_confirmation_stays_open_while_its_tool_is_unavailable() -> None:
    pending = start(canvas_with_actions(act=ACTS), "act", input={"to": "live"})
    snapshot = canvas_with_actions(act=ACTS)
    for rules in (replace(RULES, definitions={}), UNKNOWN_TOOLS):
        with pytest.raises(Unavailable):
            approve(snapshot, pending.execution, rules)


@rule("CV-22")
def test_rejection_is_logged_and_changes_nothing_else() -> None:
    pending = start(canvas_with_actions(act=ACTS), "act", input={"to": "live"})
    change = reject_execution(pending.execution, ANN, owner_id="ins_2", now_ms=NOW)(canvas())
    [(event_type, data)] = events(change)
    assert (event_type, data["eventId"], data["refusedBy"], data["revision"]) == (
        "canvas.action.refused",
        "evt_1",
        "Ann",
        7,
    )
    assert (change.is_mutation, change.state) == (False, None)
    assert (change.transition.from_status, change.transition.execution.status) == (
        ExecutionStatus.ASKED,
        ExecutionStatus.REFUSED,
    )


@rule("RS-59")
@pytest.mark.parametrize("kind", [*PrincipalKind])
def test_only_a_person_may_confirm(kind: PrincipalKind) -> None:
    principal = ANN if kind is PrincipalKind.USER else replace(ANN, kind=kind, user_id=None)
    assert may_confirm(principal) is (kind is PrincipalKind.USER)
