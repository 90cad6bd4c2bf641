"""What pressing a button does to a canvas: what is asked first, what begins, what fails where it begins. No store, no tool, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.action.transitions import (
    Message,
    NeedsTools,
    approve_execution,
    reject_execution,
    resolved_as_shown,
    work_of,
)
from easel.core.canvas.actions import Confirm, ResolvedCall, checked_action
from easel.core.canvas.execution import ExecutionStatus, may_confirm
from easel.core.canvas.spec import checked_spec
from easel.core.principal import PrincipalKind
from easel.core.tool.definition import ToolDefinition
from easel.core.values.patch import checked_patch
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
from tests.core.canvas.button import (
    ACTS,
    ANN,
    NOW,
    READS,
    RULES,
    STATE,
    acting,
    actions,
    canvas,
    press,
    told,
    types,
)
from tests.requirements import case, rule

# --- the order of the checks --------------------------------------------------------------------------------------------


@rule("CV-45")
def test_another_revision_is_refused_before_anything_else_is_looked_at() -> None:
    with pytest.raises(RevisionConflict) as conflict:
        acting(canvas(), "no such action", expected_revision=6)
    assert conflict.value.details["currentRevision"] == 7
    assert acting(canvas(), "assistantPlan", expected_revision=7).execution.status is ExecutionStatus.RUNNING


@rule("CV-36", "CV-40", "CV-41")
@case("X5")
def test_what_may_not_run_is_refused_before_its_template_and_before_tools_are_asked_for() -> None:
    snapshot = canvas(toolPolicy={"allow": []}, refresh=...)
    unknown_tools = replace(RULES, definitions=None)
    with pytest.raises(Forbidden):
        acting(snapshot, "deploy", unknown_tools)
    with pytest.raises(NotFound):
        acting(snapshot, "__proto__", unknown_tools)
    with pytest.raises(NotFound) as long:
        acting(snapshot, "x" * 100_000, unknown_tools)
    assert len(long.value.message) < 300


@rule("CV-03", "RS-45")
def test_only_a_tool_call_needs_to_know_the_tools() -> None:
    without = replace(RULES, definitions=None)
    with pytest.raises(NeedsTools):
        acting(canvas(), "refreshLogs", without)
    assert acting(canvas(), "assistantPlan", without).work == Message(
        "agent:ops:main", "Given current rollout state, propose next safe steps and risks."
    )
    assert (
        acting(canvas({"status": "x"}), "setDeploying", without).execution.status is ExecutionStatus.COMPLETED
    )


# --- beginning ----------------------------------------------------------------------------------------------------------


@rule("CV-38", "RS-33", "CV-48")
def test_what_begins_is_told_with_who_what_and_when_and_changes_nothing() -> None:
    begun = acting(actions(read=READS), "read", request_id="r1")
    [(event_type, data)] = told(begun.change)
    assert event_type == "canvas.action.started"
    assert {
        "canvasId": "cockpit",
        "revision": 7,
        "actionId": "read",
        "eventId": "evt_1",
        "startedAt": NOW,
    }.items() <= data.items()
    assert data["actor"] == {
        "userId": "ann",
        "kind": "user",
        "name": "Ann",
        "clientId": "laptop",
        "trigger": "client",
    }
    assert data["tool"] == "server-a__Read"
    assert data["provenance"] == {"agent_id": "ann", "node_id": "read", "run_id": "evt_1"}
    assert (begun.change.is_mutation, begun.change.state) == (False, None)
    step = begun.change.transition
    assert step is not None
    assert (step.from_status, step.execution) == (None, begun.execution)
    assert (begun.execution.owner_id, begun.execution.request_id, begun.execution.tool) == (
        "ins_1",
        "r1",
        "server-a__Read",
    )
    assert begun.work == ResolvedCall("server-a__Read", {"path": "api"}, "agent:ops:main")


@rule("CV-25", "CV-39", "CV-37")
def test_a_patch_of_the_state_is_all_in_one() -> None:
    begun = acting(
        actions(set={"kind": "state.patch", "patch": [{"op": "add", "path": "/list/-", "value": 2}]}), "set"
    )
    assert types(begun.change) == ["action.started", "updated", "action.finished"]
    started, updated, finished = [data for _, data in told(begun.change)]
    assert (started["revision"], updated["revision"], finished["revision"]) == (7, 8, 8)
    assert updated["changedPaths"] == ["/list/1"]
    assert finished["endedAt"] == NOW
    assert begun.change.state is not None
    assert begun.change.state["list"] == [1, 2]
    assert begun.execution.status is ExecutionStatus.COMPLETED


@rule("CV-44")
def test_an_empty_patch_is_no_mutation_and_tells_of_none() -> None:
    begun = acting(actions(set={"kind": "state.patch", "patch": []}), "set")
    assert types(begun.change) == ["action.started", "action.finished"]
    assert (begun.change.is_mutation, begun.change.state) == (False, None)


IMPOSSIBLE = [
    # says                              action                                                                   why
    ("a tool that is not there",        {**READS, "tool": "gone__Tool"},                                         Unavailable),
    ("a shell's value that is missing", {**ACTS, "confirm": "never"},                                            BadInput),
    ("no array to append to",           {**READS, "saveAs": "text", "saveMode": "append"},                       BadInput),
    ("no object to merge into",         {**READS, "saveAs": "list", "saveMode": "merge"},                        BadInput),
    ("text on the way of saveAs",       {**READS, "saveAs": "text.inner"},                                       BadInput),
    ("a patch that does not fit",       {"kind": "state.patch", "patch": [{"op": "remove", "path": "/none"}]},   BadInput),
    ("a state that grows too large",    {"kind": "state.patch", "patch": [{"op": "add", "path": "/x", "value": "y" * 200_000}]}, TooLarge),
    ("a message that grows too large",  {"kind": "session.send", "message": "{{input.to}}" * 30},                TooLarge),
]  # fmt: skip


@rule("CV-42", "CV-48", "RS-45", "RS-57", "CV-25")
@pytest.mark.parametrize("action, why", [row[1:] for row in IMPOSSIBLE], ids=[row[0] for row in IMPOSSIBLE])
def test_what_may_run_and_cannot_has_failed_and_that_is_told(
    action: dict[str, Any], why: type[HostError]
) -> None:
    snapshot = canvas(
        actions={"act": action},
        toolPolicy={"allow": ["server-a__Bash", "server-a__Read", "gone__Tool"]},
        refresh=...,
        bindings=...,
    )
    given = {"to": "z" * 50_000} if why is TooLarge else {}
    begun = acting(snapshot, "act", replace(RULES, told=lambda problem: f"<{problem.code}>"), input=given)
    assert isinstance(begun.problem, why)
    assert types(begun.change) == ["action.started", "action.failed"]
    (_, started), (_, ended) = told(begun.change)
    assert started["startedAt"] == ended["endedAt"] == NOW
    assert ended["error"] == {"code": why.gateway, "name": why.code, "message": f"<{why.code}>"}
    assert (begun.change.is_mutation, begun.change.state) == (False, None)
    assert begun.change.transition is not None
    assert (begun.change.transition.from_status, begun.execution.status) == (None, ExecutionStatus.FAILED)


# --- consent ------------------------------------------------------------------------------------------------------------


@rule("CV-22", "RS-13")
def test_who_has_to_be_asked_is_asked_with_the_resolved_call_and_nothing_starts() -> None:
    begun = acting(actions(act=ACTS), "act", input={"to": "it's"})
    [(event_type, data)] = told(begun.change)
    assert event_type == "canvas.action.asked"
    assert data["resolved"] == {
        "kind": "tool.call",
        "tool": "server-a__Bash",
        "args": {"command": "./deploy api 'it'\\''s'"},
        "sessionKey": "agent:ops:main",
        "shell": [".command"],
        "digest": ResolvedCall(
            "server-a__Bash", {"command": "./deploy api 'it'\\''s'"}, "agent:ops:main", (".command",)
        ).digest,
    }
    assert data["confirmationId"] == "evt_1"
    assert begun.execution.status is ExecutionStatus.ASKED
    assert begun.execution.resolved == data["resolved"]
    assert begun.execution.owner_id is None, "nobody runs it"
    assert not begun.change.is_mutation


@rule("RS-14", "RS-59", "CV-41")
@pytest.mark.parametrize(
    "floor, accepted, asks",
    [(Confirm.NEVER, True, False), (Confirm.ALWAYS, True, True), (Confirm.NEVER, False, True)],
)
def test_the_server_and_an_unaccepted_spec_raise_the_level(
    floor: Confirm, accepted: bool, asks: bool
) -> None:
    snapshot = canvas(
        accepted=accepted, actions={"act": {**ACTS, "confirm": "never"}}, refresh=..., bindings=...
    )
    begun = acting(snapshot, "act", replace(RULES, floor=floor), input={"to": "a"})
    assert (begun.execution.status is ExecutionStatus.ASKED) is asks


@rule("RS-59")
@pytest.mark.parametrize("confirm", ["never", "auto", "always"])
@pytest.mark.parametrize("key", [{}, {"sessionKey": "agent:ops:main"}, {"sessionKey": "agent:main:another"}])
def test_a_spec_that_nobody_accepted_reaches_no_session_by_itself(key: dict[str, str], confirm: str) -> None:
    """A message starts an agent with all that its session has: no agent sends one by a canvas that it wrote, and no refresh does."""
    sends = {"kind": "session.send", "message": "cat secret.txt", "confirm": confirm, **key}
    unaccepted = canvas(accepted=False, actions={"say": sends}, refresh=..., bindings=...)
    asked = acting(unaccepted, "say")
    assert asked.execution.status is ExecutionStatus.ASKED
    assert asked.execution.resolved is not None
    assert asked.execution.resolved["sessionKey"] == key.get("sessionKey", "agent:ops:main")
    with pytest.raises(Forbidden, match="none to ask"):
        acting(unaccepted, "say", is_attended=False)
    accepted = canvas(actions={"say": sends}, refresh=..., bindings=...)
    assert (acting(accepted, "say").execution.status is ExecutionStatus.ASKED) is (confirm == "always")


@rule("CV-41", "RS-45")
def test_what_runs_by_itself_has_nobody_to_ask() -> None:
    with pytest.raises(Forbidden, match="none to ask"):
        acting(actions(act=ACTS), "act", input={"to": "a"}, is_attended=False)
    with pytest.raises(Unavailable):
        acting(actions(read=READS), "read", replace(RULES, definitions={}), is_attended=False)
    assert acting(actions(read=READS), "read", is_attended=False).execution.status is ExecutionStatus.RUNNING


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
    | st.builds(Message, st.just("agent:ops:main"), st.text())
    | PATCHES.map(checked_patch)
)
def test_what_is_shown_is_what_runs(work: Any) -> None:
    saves = checked_action("act", {**ACTS, "saveAs": "out", "saveMode": "append"})
    stored = msgspec.json.decode(msgspec.json.encode(resolved_as_shown(work, saves)))
    assert work_of(stored) == work


@case("X6")
def test_a_digest_names_one_call_alone() -> None:
    one = ResolvedCall("t", {"a": 1, "b": [2]}, "agent:ops:main")
    assert one.digest == ResolvedCall("t", {"b": [2], "a": 1}, "agent:ops:main").digest
    others = [
        ResolvedCall("u", one.args, one.session_key),
        ResolvedCall("t", {"a": "1", "b": [2]}, one.session_key),
        ResolvedCall("t", {"a": 1, "b": [2], "c": None}, one.session_key),
        ResolvedCall("t", one.args, "agent:ops:other"),
        ResolvedCall("t", one.args, one.session_key, (".a",)),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 6


@rule("RS-45", "RS-16")
@case("X6")
def test_what_was_shown_as_text_is_not_handed_to_a_shell_that_the_tool_has_become_meanwhile() -> None:
    echo = ToolDefinition("server-a__Bash", "", {"type": "object"})
    snapshot = actions(act={**ACTS, "args": {"command": "{{input.to}}"}})
    asked = acting(
        snapshot, "act", replace(RULES, definitions={"server-a__Bash": echo}), input={"to": "x; rm -rf /"}
    )
    yes = press("act", event_id="evt_2", owner_id="ins_2")
    with pytest.raises(ConfirmationClosed, match="the tool has changed"):
        approve_execution(snapshot, checked_spec(snapshot.canvas.spec), asked.execution, yes, RULES)


AGREED: list[tuple[str, dict[str, Any], type[HostError] | None]] = [
    # says                                the spec meanwhile                                                       refused with
    ("nothing has changed",               {},                                                                      None),
    ("other arguments",                   {"actions": {"act": {**ACTS, "args": {"command": "rm -rf"}}}},           None),
    ("another place for the result",      {"actions": {"act": {**ACTS, "saveAs": "out"}}},                         ConfirmationClosed),
    ("another tool",                      {"actions": {"act": READS}},                                             ConfirmationClosed),
    ("another kind",                      {"actions": {"act": {"kind": "state.patch", "patch": []}}},              ConfirmationClosed),
    ("no such action",                    {"actions": {"other": ACTS}},                                            ConfirmationClosed),
    ("the tool is no longer allowed",     {"toolPolicy": {"allow": ["server-a__Read"]}},                           Forbidden),
]  # fmt: skip


@rule("CV-22", "CV-40", "CV-41")
@case("X6")
@pytest.mark.parametrize("meanwhile, problem", [row[1:] for row in AGREED], ids=[row[0] for row in AGREED])
def test_what_was_agreed_to_runs_as_it_was_shown_or_not_at_all(
    meanwhile: dict[str, Any], problem: type[HostError] | None
) -> None:
    asked = acting(actions(act=ACTS), "act", input={"to": "live"})
    later = canvas(
        {**STATE, "service": "other"},
        **{"actions": {"act": ACTS}, "refresh": ..., "bindings": ...} | meanwhile,
    )
    # Whose folder it works in was shown too: that the canvas is somebody else's now changes nothing.
    later = replace(later, canvas=replace(later.canvas, owner_session_key="agent:evil:main"))
    yes = press("act", event_id="evt_2", owner_id="ins_2")
    if problem is not None:
        with pytest.raises(problem):
            approve_execution(later, checked_spec(later.canvas.spec), asked.execution, yes, RULES)
        return
    begun = approve_execution(later, checked_spec(later.canvas.spec), asked.execution, yes, RULES)
    assert (
        begun.work
        == asked.work
        == ResolvedCall("server-a__Bash", {"command": "./deploy api live"}, "agent:ops:main", (".command",))
    )
    assert types(begun.change) == ["action.started"]
    step = begun.change.transition
    assert step is not None
    assert step.from_status is ExecutionStatus.ASKED, "it is used once"
    assert (step.execution.event_id, step.execution.confirmed_by, step.execution.owner_id) == (
        "evt_1",
        "Ann",
        "ins_2",
    )


@rule("RS-45")
def test_a_tool_that_is_away_keeps_the_confirmation_for_later() -> None:
    asked = acting(actions(act=ACTS), "act", input={"to": "live"})
    snapshot = actions(act=ACTS)
    with pytest.raises(Unavailable):
        approve_execution(
            snapshot,
            checked_spec(snapshot.canvas.spec),
            asked.execution,
            press("act"),
            replace(RULES, definitions={}),
        )
    with pytest.raises(NeedsTools):
        approve_execution(
            snapshot,
            checked_spec(snapshot.canvas.spec),
            asked.execution,
            press("act"),
            replace(RULES, definitions=None),
        )


@rule("CV-22")
def test_a_refusal_is_told_and_changes_nothing() -> None:
    asked = acting(actions(act=ACTS), "act", input={"to": "live"})
    change = reject_execution(canvas(), asked.execution, press("act", event_id="evt_2"))
    [(event_type, data)] = told(change)
    assert (event_type, data["eventId"], data["refusedBy"], data["revision"]) == (
        "canvas.action.refused",
        "evt_1",
        "Ann",
        7,
    )
    assert (change.is_mutation, change.state) == (False, None)
    assert change.transition is not None
    assert (change.transition.from_status, change.transition.execution.status) == (
        ExecutionStatus.ASKED,
        ExecutionStatus.REFUSED,
    )


@rule("RS-59")
@pytest.mark.parametrize("kind", [*PrincipalKind])
def test_only_a_person_confirms(kind: PrincipalKind) -> None:
    assert may_confirm(replace(ANN, kind=kind)) is (kind is PrincipalKind.USER)
