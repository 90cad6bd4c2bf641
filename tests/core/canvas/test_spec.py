"""Specs: what an author may declare, and that everything else is refused where it stands."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.canvas.actions import CallTool, Confirm, PatchState, SaveTarget, SendMessage, WhenMissing
from easel.core.canvas.spec import CanvasSpec, Mode, Refresh, SpecLimits, check_state_size, parse_spec
from easel.core.values.paths import SaveMode
from easel.core.values.template import Template
from easel.errors import BadInput, HostError, TooLarge
from tests.core.canvas.specs import EXAMPLE, example, with_action
from tests.core.stream.costs import least_seconds
from tests.core.values.test_paths import json_values
from tests.requirements import case, rule

CALL: dict[str, Any] = {"kind": "tool.call", "tool": "server-a__Bash"}
SEND: dict[str, Any] = {"kind": "session.send", "message": "Hello"}
PATCH: dict[str, Any] = {"kind": "state.patch", "patch": []}


@rule("CV-10", "CV-16", "CV-18", "CV-19", "CV-20", "CV-24", "CV-25")
def test_the_specification_s_own_example_is_read_as_it_is_meant() -> None:
    raw = copy.deepcopy(EXAMPLE)
    spec = parse_spec(raw)
    assert raw == EXAMPLE
    assert spec.mode is Mode.HTML
    assert spec.tools == {"server-a__Bash", "server-a__Read", "gsv__LogsGet"}
    assert spec.state == EXAMPLE["state"]
    assert spec.bindings == {"buttons.deployNow": "deploy", "buttons.refreshLogs": "refreshLogs"}
    assert spec.refreshes == (Refresh("pollLogs", 30_000, "refreshLogs", is_enabled=True),)
    deploy, plan, patch = (spec.actions[name] for name in ("deploy", "assistantPlan", "setDeploying"))
    assert isinstance(deploy, CallTool)
    assert (deploy.tool, deploy.confirm, deploy.timeout_ms) == ("server-a__Bash", Confirm.ALWAYS, 120_000)
    assert deploy.save_target == SaveTarget(("lastDeploy",), SaveMode.REPLACE)
    assert isinstance(deploy.template["command"], Template)
    assert isinstance(plan, SendMessage)
    assert (plan.session_key, plan.save_target) == (None, SaveTarget(("assistant", "plan"), SaveMode.REPLACE))
    assert isinstance(patch, PatchState)
    assert [str(one) for one in patch.patch] == ["replace /status"]


@rule("CV-40", "CV-13")
def test_a_spec_may_leave_out_everything_and_then_allows_nothing() -> None:
    assert parse_spec({}) == CanvasSpec(
        mode=Mode.HTML, tools=frozenset(), state={}, actions={}, bindings={}, refreshes=(), writable=None
    )


@rule("RS-32", "CV-16")
def test_a_canvas_may_be_a_document() -> None:
    assert parse_spec({"version": 1, "mode": "markdown"}).mode is Mode.MARKDOWN


@rule("CV-20", "RS-45", "RS-12")
def test_what_an_action_leaves_out_has_its_default() -> None:
    action = parse_spec(with_action(**CALL)).actions["act"]
    assert isinstance(action, CallTool)
    assert (action.args, action.save_target, action.confirm, action.timeout_ms) == ({}, None, Confirm.AUTO, None)
    assert (action.missing, action.allows_options) == (WhenMissing.FAIL, False)


REFUSED = [
    # says                           spec                                                          because
    ("no object",                    [],                                                           "spec: must be an object"),
    ("another version",              example(version=2),                                           "version: is 1"),
    ("a version in quotes",          example(version="1"),                                         "version: is 1"),
    ("a version that is true",       example(version=True),                                        "version: is 1"),
    ("a version of 1.0",             example(version=1.0),                                         "version: is 1"),
    ("another mode",                 example(mode="pdf"),                                          "mode: `pdf` is not one of html, markdown"),
    ("a mode that is a list",        example(mode=["html"]),                                       "mode: `list` is not one of"),
    ("a misspelt member",            example(toolpolicy={"allow": []}),                            "toolpolicy: is unknown"),
    ("a policy that is a list",      example(toolPolicy=["server-a__Bash"]),                       "toolPolicy: must be an object"),
    ("a misspelt allow",             example(toolPolicy={"allowed": []}),                          "toolPolicy.allowed: is not known"),
    ("an allow that is text",        example(toolPolicy={"allow": "server-a__Bash"}),              "toolPolicy.allow: must be a list"),
    ("a pattern of tools",           example(toolPolicy={"allow": ["server-a__*"]}),               "toolPolicy.allow[0]: `server-a__*` is no tool"),
    ("every tool",                   example(toolPolicy={"allow": ["*"]}),                         "toolPolicy.allow[0]"),
    ("a blank after a name",         example(toolPolicy={"allow": ["a__B", "gsv__LogsGet "]}),     "toolPolicy.allow[1]"),
    ("a letter that looks alike",    example(toolPolicy={"allow": ["gsv__LоgsGet"]}),              "toolPolicy.allow[0]"),
    ("a tool that is no text",       example(toolPolicy={"allow": [7]}),                           "toolPolicy.allow[0]: `int` is no tool"),
    ("an origin with a path",        example(toolPolicy={"connect": ["https://a.example/x"]}),     "toolPolicy.connect[0]"),
    ("an origin that ends a header", example(toolPolicy={"connect": ["https://a.example;x"]}),     "toolPolicy.connect[0]"),
    ("any origin",                   example(toolPolicy={"connect": ["https:"]}),                  "toolPolicy.connect[0]"),
    ("a wildcard origin",            example(toolPolicy={"connect": ["https://*.example"]}),       "toolPolicy.connect[0]"),
    ("an open origin",               example(toolPolicy={"connect": ["http://a.example"]}),        "toolPolicy.connect[0]"),
    ("a state that is a list",       example(state=[]),                                            "state: must be an object"),
    ("a state that is null",         example(state=None),                                          "state: must be an object"),
    ("actions in a list",            example(actions=[CALL]),                                      "actions: must be an object"),
    ("an action that is text",       example(actions={"deploy": "x"}),                             "actions.deploy: must be an object"),
    ("an action called prototype",   {"actions": {"__proto__": CALL}},                             "actions: `__proto__` is not an id"),
    ("an action called constructor", {"actions": {"constructor": CALL}},                           "actions: `constructor` is not an id"),
    ("an action with a blank",       {"actions": {"de ploy": CALL}},                               "actions: `de ploy` is not an id"),
    ("an action without a name",     {"actions": {"": CALL}},                                      "actions: `` is not an id"),
    ("no kind",                      with_action(tool="a__B"),                                     "actions.act.kind: `NoneType` is not one of"),
    ("another kind",                 with_action(**CALL | {"kind": "script.run"}),                 "actions.act.kind: `script.run` is not one of tool.call, session.send, state.patch"),
    ("a kind with a blank",          with_action(**CALL | {"kind": "tool.call "}),                 "actions.act.kind"),
    ("no tool",                      with_action(kind="tool.call"),                                "actions.act.tool: is required by tool.call."),
    ("args in a list",               with_action(**CALL, args=["ls"]),                             "actions.act.args: must be an object"),
    ("args that are text",           with_action(**CALL, args="ls"),                               "actions.act.args: must be an object"),
    ("another level of confirm",     with_action(**CALL, confirm="maybe"),                         "actions.act.confirm: `maybe` is not one of never, auto, always"),
    ("a confirm that is true",       with_action(**CALL, confirm=True),                            "actions.act.confirm: `bool` is not one of"),
    ("a misspelt confirm",           with_action(**CALL, confrim="always"),                        "actions.act.confrim: is not known"),
    ("a message of a tool.call",     with_action(**CALL, message="x"),                             "actions.act.message: is not known"),
    ("no time at all",               with_action(**CALL, timeoutMs=0),                             "actions.act.timeoutMs: must be a whole number from 1"),
    ("too much time",                with_action(**CALL, timeoutMs=3_600_001),                     "actions.act.timeoutMs"),
    ("time in quotes",               with_action(**CALL, timeoutMs="1000"),                        "actions.act.timeoutMs"),
    ("time that is true",            with_action(**CALL, timeoutMs=True),                          "actions.act.timeoutMs"),
    ("half a millisecond",           with_action(**CALL, timeoutMs=1000.5),                        "actions.act.timeoutMs"),
    ("a saveAs to a prototype",      with_action(**CALL, saveAs="__proto__.x"),                    "actions.act.saveAs: `__proto__` may not"),
    ("a saveAs to a pointer",        with_action(**CALL, saveAs="/a/b"),                           "actions.act.saveAs"),
    ("an empty saveAs",              with_action(**CALL, saveAs=""),                               "actions.act.saveAs"),
    ("another saveMode",             with_action(**CALL, saveAs="a", saveMode="prepend"),          "actions.act.saveMode: `prepend` is not one of replace, merge, append"),
    ("a saveMode alone",             with_action(**CALL, saveMode="merge"),                        "actions.act.saveMode: needs saveAs"),
    ("another missing",              with_action(**CALL, missing="skip"),                          "actions.act.missing: `skip` is not one of"),
    ("a flag in quotes",             with_action(**CALL, allowOptions="true"),                     "actions.act.allowOptions: must be true or false"),
    ("a template into a prototype",  with_action(**CALL, args={"a": ["{{state.__proto__.x}}"]}),   "actions.act.args.a[0]: `__proto__` may not"),
    ("no message",                   with_action(kind="session.send"),                             "actions.act.message: must be text"),
    ("an empty message",             with_action(**SEND | {"message": ""}),                        "actions.act.message: must be text"),
    ("a message that is a list",     with_action(**SEND | {"message": ["a"]}),                     "actions.act.message: must be text"),
    ("a tool of a session.send",     with_action(**SEND, tool="a__B"),                             "actions.act.tool: is not known"),
    ("a session that is none",       with_action(**SEND, sessionKey="main"),                       "actions.act.sessionKey: `main` is no session"),
    ("a session without a name",     with_action(**SEND, sessionKey="agent:main:"),                "actions.act.sessionKey"),
    ("a session by template",        with_action(**SEND, sessionKey="agent:main:{{state.x}}"),     "actions.act.sessionKey"),
    ("no patch",                     with_action(kind="state.patch"),                              "actions.act.patch: is missing"),
    ("a patch that is no list",      with_action(**PATCH | {"patch": {}}),                         "actions.act.patch: must be a list"),
    ("another operation",            with_action(**PATCH | {"patch": [{"op": "test", "path": ""}]}), "actions.act.patch[0].op: is one of add"),
    ("a saveAs of a state.patch",    with_action(**PATCH, saveAs="a"),                             "actions.act.saveAs: is not known"),
    ("a binding to nothing",         example(bindings={"b": "undeclared"}),                        "bindings.b: `undeclared` is not among the actions"),
    ("a binding to a method",        example(bindings={"b": "toString"}),                          "bindings.b: `toString` is not among"),
    ("a binding that is a list",     example(bindings={"b": ["deploy"]}),                          "bindings.b: `list` is not among"),
    ("a control without a name",     example(bindings={"": "deploy"}),                             "bindings: `` is no control"),
    ("a control on a prototype",     example(bindings={"a.__proto__": "deploy"}),                  "bindings: `a.__proto__` is no control"),
    ("refresh as an object",         example(refresh={"id": "x"}),                                 "refresh: must be a list"),
    ("refresh every millisecond",    example(refresh=[{"id": "a", "everyMs": 1, "action": "refreshLogs"}]),        "refresh[0].everyMs: must be a whole number from 1000"),
    ("refresh every second in text", example(refresh=[{"id": "a", "everyMs": "1000", "action": "refreshLogs"}]),   "refresh[0].everyMs"),
    ("refresh of nothing",           example(refresh=[{"id": "a", "everyMs": 1000, "action": "gone"}]),            "refresh[0].action: `gone` is not among"),
    ("refresh without a name",       example(refresh=[{"everyMs": 1000, "action": "refreshLogs"}]),                "refresh[0].id: `NoneType` is not an id"),
    ("refresh perhaps",              example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs", "enabled": "yes"}]), "refresh[0].enabled: is true"),
    ("refresh watched perhaps",      example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs", "onlyWatched": 1}]), "refresh[0].onlyWatched: is true"),
    ("refresh with more",            example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs", "cron": "*"}]), "refresh[0].cron: is not known"),
    ("two of one name",              example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs"}] * 2), "refresh[1].id: `a` is there already"),
    ("writable in text",             example(writable="version"),                                  "writable: must be a list"),
    ("writable prototype",           example(writable=["version", "__proto__"]),                   "writable[1]: `__proto__` may not"),
    ("a title that is a list",       example(title=["x"]),                                         "title: must be text"),
]  # fmt: skip


@rule("CV-10", "CV-16", "CV-20", "CV-24", "CV-25")
@case("X4", "X5", "X7", "X9")
@pytest.mark.parametrize("raw, because", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_wrong_is_refused_where_it_stands(raw: Any, because: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_spec(raw)
    assert because in refusal.value.message
    assert refusal.value.message.startswith(because[:4])


ACCEPTED = [
    with_action(**CALL, args={"a": [1, {"b": None}]}, saveAs="a.b", saveMode="append", confirm="never", timeoutMs=1, missing="empty", allowOptions=True),
    with_action(**CALL, title="Deploy", description=""),
    with_action(**SEND, sessionKey="agent:main:ops", saveAs="a", saveMode="merge", confirm="always", timeoutMs=3_600_000),
    with_action(**PATCH, confirm="always"),
    example(title="Cockpit", description="", **{"$schema": "https://example.com/canvas.json", "x-mine": {"any": [1]}}),
    example(toolPolicy={"allow": [], "connect": ["https://api.example.com:8443", "wss://a.example", "https://xn--bcher-kva.example"]}),
    example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs", "enabled": False}, {"id": "b", "everyMs": 604800000, "action": "refreshLogs"}]),
    example(version=..., mode=..., toolPolicy=..., state=..., bindings=..., refresh=...),
    example(bindings={"Größe ändern": "deploy"}),
    {"state": {"__proto__": 1, "constructor": {"a": 1}}},
]  # fmt: skip


@rule("CV-10", "CV-16", "CV-24")
@pytest.mark.parametrize("raw", ACCEPTED, ids=range(len(ACCEPTED)))
def test_what_is_right_is_read(raw: Any) -> None:
    before = copy.deepcopy(raw)
    parse_spec(raw)
    assert raw == before


@rule("RS-41")
def test_a_page_writes_where_the_spec_lets_it() -> None:
    spec = parse_spec(example())
    assert spec.may_write(("version",))
    assert spec.may_write(("version", "major"))
    assert not spec.may_write(("status",))
    narrow = parse_spec(example(writable=["version", "form.name"]))
    assert narrow.may_write(("version",))
    assert narrow.may_write(("form", "name", "first"))
    assert not narrow.may_write(("form",))
    assert not narrow.may_write(("form", "names"))
    assert not narrow.may_write(("service",))
    assert not parse_spec(example(writable=[])).may_write(("version",))


# --- sizes --------------------------------------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


LARGE = [
    # says                    spec                                                                              refused with
    ("10,000 actions",        {"actions": {f"a{number}": CALL for number in range(10_000)}},                    "actions: has 10000 members; 500 is the limit"),
    ("a state of 10 MB",      {"state": {"text": "x" * 10_000_000}},                                            "state is larger than the limit of 1048576 bytes"),
    ("a state of many parts", {"state": {f"k{number}": [number] for number in range(400_000)}},                 "state is larger"),
    ("a long message",        {"actions": {"a": SEND | {"message": "x" * 100_000}}},                            "actions.a.message: must be text of 1 to 32000"),
    ("a huge spec",           {"actions": {"a": SEND | {"message": "x" * 1_000_000}}},                          "spec without its state is larger"),
    ("many bindings",         {"actions": {"a": PATCH}, "bindings": {f"b{number}": "a" for number in range(2_000)}}, "bindings: has 2000 members"),
    ("many refreshes",        {"actions": {"a": PATCH}, "refresh": [{"id": f"r{n}", "everyMs": 1000, "action": "a"} for n in range(100)]}, "refresh: has 100 entries"),
    ("many tools",            {"toolPolicy": {"allow": [f"a__T{number}" for number in range(1_000)]}},          "toolPolicy.allow: has 1000 entries"),
    ("a deep state",          {"state": nested(200)},                                                           "state: is nested deeper"),
    ("a state without floor", {"state": nested(5_000)},                                                         "state: is nested deeper"),
    ("deep arguments",        {"actions": {"a": CALL | {"args": nested(5_000)}}},                               "spec: is nested deeper"),
    ("many operations",       {"actions": {"a": PATCH | {"patch": [{"op": "remove", "path": "/a"}] * 1_001}}},  "actions.a.patch: has 1001 operations"),
]  # fmt: skip


@pytest.mark.parametrize("raw, because", [row[1:] for row in LARGE], ids=[row[0] for row in LARGE])
@case("R1")
def test_what_is_too_much_is_refused_before_it_costs_anything(raw: Any, because: str) -> None:
    def refuse() -> None:
        with pytest.raises((BadInput, TooLarge), match=because.replace("[", r"\[")):
            parse_spec(raw)

    assert least_seconds(refuse, enough=1) < 1


def test_limits_are_the_caller_s_to_set() -> None:
    parse_spec(example(), SpecLimits(actions=4))
    with pytest.raises(BadInput, match="actions: has 4 members; 3 is the limit"):
        parse_spec(example(), SpecLimits(actions=3))
    with pytest.raises(TooLarge):
        parse_spec(example(), SpecLimits(state_bytes=20))
    with pytest.raises(TooLarge):
        check_state_size({"a": "é" * 10}, 27)
    check_state_size({"a": "é" * 10}, 28)


# --- anything at all ----------------------------------------------------------------------------------------------------

_members = st.sampled_from(
    [
        *EXAMPLE,
        "writable",
        "title",
        "x-a",
        "kind",
        "tool",
        "args",
        "patch",
        "message",
        "saveAs",
        "allow",
        "id",
        "everyMs",
        "action",
    ]
)
_words = st.sampled_from(
    [
        "html",
        "tool.call",
        "session.send",
        "state.patch",
        "a",
        "a__B",
        "{{state.a}}",
        "deploy",
        "__proto__",
        "always",
        "replace",
        "/a",
    ]
)
_odd = st.recursive(
    json_values | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_members | _words, inner, max_size=4),
    max_leaves=12,
)


def refusal_of(raw: Any) -> str | None:
    try:
        parse_spec(raw)
    except HostError as refusal:
        return refusal.message
    return None


@rule("CV-10")
@given(st.dictionaries(_members, _odd, max_size=5) | _odd, st.sampled_from([None, *EXAMPLE]))
def test_whatever_comes_is_read_or_refused_and_never_breaks(odd: Any, member: str | None) -> None:
    raw = odd if member is None else example(**{member: odd})
    before = copy.deepcopy(raw)
    message = refusal_of(raw)
    assert message is None or ": " in message or "larger" in message
    assert len(message or "") < 2_000
    assert raw == before
