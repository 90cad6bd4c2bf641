"""Specs: what an author may declare, and the messages for everything else."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from easel.core.canvas.actions import CallTool, Confirm, PatchState, SaveTarget, SendMessage, WhenMissing
from easel.core.canvas.spec import CanvasSpec, Mode, Refresh, SpecLimits, check_state_size, parse_spec
from easel.core.problems import MAX_PROBLEMS, problems_of
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
def test_example_of_the_specification_is_parsed() -> None:
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
    assert [str(operation) for operation in patch.patch] == ["replace /status"]


@rule("CV-40", "CV-13")
def test_empty_spec_allows_no_tools() -> None:
    assert parse_spec({}) == CanvasSpec(
        mode=Mode.HTML, tools=frozenset(), state={}, actions={}, bindings={}, refreshes=(), writable=None
    )


@rule("RS-32", "CV-16")
def test_markdown_mode_is_accepted() -> None:
    assert parse_spec({"version": 1, "mode": "markdown"}).mode is Mode.MARKDOWN


@rule("CV-20", "RS-45", "RS-12")
def test_action_has_defaults() -> None:
    action = parse_spec(with_action(**CALL)).actions["act"]
    assert isinstance(action, CallTool)
    assert (action.args, action.save_target, action.confirm, action.timeout_ms) == (
        {},
        None,
        Confirm.AUTO,
        None,
    )
    assert (action.missing, action.allows_options) == (WhenMissing.FAIL, False)


REFUSED = [
    # spec, and the beginning of the message
    ([], "spec: must be an object"),
    (example(version=2), "version: must be 1"),
    (example(version="1"), "version: must be 1"),
    (example(version=True), "version: must be 1"),
    (example(version=1.0), "version: must be 1"),
    (example(mode="pdf"), "mode: `pdf` is not one of html, markdown"),
    (example(mode=["html"]), "mode: `list` is not one of"),
    (example(toolpolicy={"allow": []}), "toolpolicy: is unknown"),
    (example(toolPolicy=["server-a__Bash"]), "toolPolicy: must be an object"),
    (example(toolPolicy={"allowed": []}), "toolPolicy.allowed: is unknown"),
    (example(toolPolicy={"allow": "server-a__Bash"}), "toolPolicy.allow: must be a list"),
    (example(toolPolicy={"allow": ["server-a__*"]}), "toolPolicy.allow[0]: `server-a__*` is not a tool name"),
    (example(toolPolicy={"allow": ["*"]}), "toolPolicy.allow[0]"),
    (example(toolPolicy={"allow": ["a__B", "gsv__LogsGet "]}), "toolPolicy.allow[1]"),
    (example(toolPolicy={"allow": ["gsv__LоgsGet"]}), "toolPolicy.allow[0]"),
    (example(toolPolicy={"allow": [7]}), "toolPolicy.allow[0]: `int` is not a tool name"),
    (example(toolPolicy={"connect": ["https://a.example/x"]}), "toolPolicy.connect[0]"),
    (example(toolPolicy={"connect": ["https://a.example;x"]}), "toolPolicy.connect[0]"),
    (example(toolPolicy={"connect": ["https:"]}), "toolPolicy.connect[0]"),
    (example(toolPolicy={"connect": ["https://*.example"]}), "toolPolicy.connect[0]"),
    (example(toolPolicy={"connect": ["http://a.example"]}), "toolPolicy.connect[0]"),
    (example(state=[]), "state: must be an object"),
    (example(state=None), "state: must be an object"),
    (example(actions=[CALL]), "actions: must be an object"),
    ({"actions": {"deploy": "x"}}, "actions.deploy: must be an object"),
    ({"actions": {"__proto__": CALL}}, "actions: `__proto__` is not an id"),
    ({"actions": {"constructor": CALL}}, "actions: `constructor` is not an id"),
    ({"actions": {"de ploy": CALL}}, "actions: `de ploy` is not an id"),
    ({"actions": {"": CALL}}, "actions: `` is not an id"),
    (with_action(tool="a__B"), "actions.act.kind: `NoneType` is not one of"),
    (with_action(**CALL | {"kind": "script.run"}),
     "actions.act.kind: `script.run` is not one of tool.call, session.send, state.patch"),
    (with_action(**CALL | {"kind": "tool.call "}), "actions.act.kind"),
    (with_action(kind="tool.call"), "actions.act.tool: is required by tool.call."),
    (with_action(**CALL, args=["ls"]), "actions.act.args: must be an object"),
    (with_action(**CALL, args="ls"), "actions.act.args: must be an object"),
    (with_action(**CALL, confirm="maybe"), "actions.act.confirm: `maybe` is not one of never, auto, always"),
    (with_action(**CALL, confirm=True), "actions.act.confirm: `bool` is not one of"),
    (with_action(**CALL, confrim="always"), "actions.act.confrim: is unknown"),
    (with_action(**CALL, message="x"), "actions.act.message: is unknown"),
    (with_action(**CALL, timeoutMs=0), "actions.act.timeoutMs: must be a whole number from 1"),
    (with_action(**CALL, timeoutMs=3_600_001), "actions.act.timeoutMs"),
    (with_action(**CALL, timeoutMs="1000"), "actions.act.timeoutMs"),
    (with_action(**CALL, timeoutMs=True), "actions.act.timeoutMs"),
    (with_action(**CALL, timeoutMs=1000.5), "actions.act.timeoutMs"),
    (with_action(**CALL, saveAs="__proto__.x"), "actions.act.saveAs: `__proto__` must not"),
    (with_action(**CALL, saveAs="/a/b"), "actions.act.saveAs"),
    (with_action(**CALL, saveAs=""), "actions.act.saveAs"),
    (with_action(**CALL, saveAs="a", saveMode="prepend"),
     "actions.act.saveMode: `prepend` is not one of replace, merge, append"),
    (with_action(**CALL, saveMode="merge"), "actions.act.saveMode: needs saveAs"),
    (with_action(**CALL, missing="skip"), "actions.act.missing: `skip` is not one of"),
    (with_action(**CALL, allowOptions="true"), "actions.act.allowOptions: must be true or false"),
    (with_action(**CALL, args={"a": ["{{state.__proto__.x}}"]}),
     "actions.act.args.a[0]: `__proto__` must not"),
    (with_action(kind="session.send"), "actions.act.message: must be text"),
    (with_action(**SEND | {"message": ""}), "actions.act.message: must be text"),
    (with_action(**SEND | {"message": ["a"]}), "actions.act.message: must be text"),
    (with_action(**SEND, tool="a__B"), "actions.act.tool: is unknown"),
    (with_action(**SEND, sessionKey="other"), "actions.act.sessionKey: `other` is not a session key"),
    (with_action(**SEND, sessionKey="agent:main:"), "actions.act.sessionKey"),
    (with_action(**SEND, sessionKey="agent:main:{{state.x}}"), "actions.act.sessionKey"),
    (with_action(kind="state.patch"), "actions.act.patch: is required"),
    (with_action(kind="state.patch", patch=[{"op": "remove", "path": "/items/{{input.i}}"}]),
     "actions.act.patch[0].path: placeholders are not filled in a path"),
    (with_action(**PATCH | {"patch": {}}), "actions.act.patch: must be a list"),
    (with_action(**PATCH | {"patch": [{"op": "test", "path": ""}]}),
     "actions.act.patch[0].op: must be one of add"),
    (with_action(**PATCH, saveAs="a"), "actions.act.saveAs: is unknown"),
    (example(bindings={"b": "undeclared"}), "bindings.b: `undeclared` is not a declared action"),
    (example(bindings={"b": "toString"}), "bindings.b: `toString` is not a declared action"),
    (example(bindings={"b": ["deploy"]}), "bindings.b: `list` is not a declared action"),
    (example(bindings={"": "deploy"}), "bindings: `` is not the name of a control"),
    (example(bindings={"a.__proto__": "deploy"}), "bindings: `a.__proto__` is not the name of a control"),
    (example(refresh={"id": "x"}), "refresh: must be a list"),
    (example(refresh=[{"id": "a", "everyMs": 1, "action": "refreshLogs"}]),
     "refresh[0].everyMs: must be a whole number from 1000"),
    (example(refresh=[{"id": "a", "everyMs": "1000", "action": "refreshLogs"}]), "refresh[0].everyMs"),
    (example(refresh=[{"id": "a", "everyMs": 1000, "action": "gone"}]),
     "refresh[0].action: `gone` is not a declared action"),
    (example(refresh=[{"everyMs": 1000, "action": "refreshLogs"}]), "refresh[0].id: `NoneType` is not an id"),
    (example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs", "enabled": "yes"}]),
     "refresh[0].enabled: must be true or false"),
    (example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs", "onlyWatched": 1}]),
     "refresh[0].onlyWatched: must be true or false"),
    (example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs", "cron": "*"}]),
     "refresh[0].cron: is unknown"),
    (example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs"}] * 2),
     "refresh[1].id: `a` is used twice"),
    (example(writable="version"), "writable: must be a list"),
    (example(writable=["version", "__proto__"]), "writable[1]: `__proto__` must not"),
    (example(title=["x"]), "title: must be text"),
]  # fmt: skip


@rule("CV-10", "CV-16", "CV-20", "CV-24", "CV-25")
@case("X4", "X5", "X7", "X9")
@pytest.mark.parametrize("raw, because", REFUSED, ids=[row[1] for row in REFUSED])
def test_invalid_spec_is_refused_with_the_location(raw: Any, because: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_spec(raw)
    assert because in refusal.value.message
    assert refusal.value.message.startswith(because[:4])


ACCEPTED = [
    with_action(**CALL, args={"a": [1, {"b": None}]}, saveAs="a.b", saveMode="append", confirm="never"),
    with_action(**CALL, timeoutMs=1, missing="empty", allowOptions=True),
    with_action(**CALL, title="Deploy", description=""),
    with_action(**SEND, sessionKey="agent:main:ops", saveAs="a", saveMode="merge"),
    with_action(**SEND, confirm="always", timeoutMs=3_600_000),
    with_action(**PATCH, confirm="always"),
    example(title="Cockpit", description="", **{"$schema": "https://a.example/s", "x-mine": {"any": [1]}}),
    example(toolPolicy={"allow": [], "connect": ["https://api.example.com:8443", "wss://a.example"]}),
    example(refresh=[{"id": "a", "everyMs": 1000, "action": "refreshLogs", "enabled": False}]),
    example(refresh=[{"id": name, "everyMs": 604800000, "action": "refreshLogs"} for name in "ab"]),
    example(version=..., mode=..., toolPolicy=..., state=..., bindings=..., refresh=...),
    example(bindings={"Größe ändern": "deploy"}), {"state": {"__proto__": 1, "constructor": {"a": 1}}},
]  # fmt: skip


@rule("CV-10", "CV-16", "CV-24")
@pytest.mark.parametrize("raw", ACCEPTED, ids=range(len(ACCEPTED)))
def test_valid_spec_is_parsed(raw: Any) -> None:
    before = copy.deepcopy(raw)
    parse_spec(raw)
    assert raw == before


@rule("RS-41")
def test_page_may_write_only_declared_paths() -> None:
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


# --- sizes --------------------------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


LARGE = [
    # case, spec, message
    ("10,000 actions", {"actions": {f"a{number}": CALL for number in range(10_000)}},
     "actions: has 10000 members; 500 is the limit"),
    ("a state of 10 MB", {"state": {"text": "x" * 10_000_000}},
     "state is larger than the limit of 1048576 bytes"),
    ("a state of many parts", {"state": {f"k{number}": [number] for number in range(400_000)}},
     "state is larger"),
    ("a long message", {"actions": {"a": SEND | {"message": "x" * 100_000}}},
     "actions.a.message: must be text of 1 to 32000"),
    ("a huge spec", {"actions": {"a": SEND | {"message": "x" * 1_000_000}}},
     "spec without its state is larger"),
    ("many bindings", {"actions": {"a": PATCH}, "bindings": {f"b{number}": "a" for number in range(2_000)}},
     "bindings: has 2000 members"),
    ("many refreshes",
     {"actions": {"a": PATCH}, "refresh": [{"id": "r", "everyMs": 1000, "action": "a"}] * 100},
     "refresh: has 100 entries"),
    ("many tools", {"toolPolicy": {"allow": [f"a__T{number}" for number in range(1_000)]}},
     "toolPolicy.allow: has 1000 entries"),
    ("a deep state", {"state": nested(200)}, "state: must not be nested deeper"),
    ("a very deep state", {"state": nested(5_000)}, "state: must not be nested deeper"),
    ("deep arguments", {"actions": {"a": CALL | {"args": nested(5_000)}}}, "spec: must not be nested deeper"),
    ("many operations", {"actions": {"a": PATCH | {"patch": [{"op": "remove", "path": "/a"}] * 1_001}}},
     "actions.a.patch: must have at most 1000 operations"),
]  # fmt: skip


@pytest.mark.parametrize("raw, because", [row[1:] for row in LARGE], ids=[row[0] for row in LARGE])
@case("R1")
def test_oversized_spec_is_refused_quickly(raw: Any, because: str) -> None:
    def refuse() -> None:
        with pytest.raises((BadInput, TooLarge), match=because.replace("[", r"\[")):
            parse_spec(raw)

    assert least_seconds(refuse, enough=1) < 1


def test_limits_are_parameters() -> None:
    parse_spec(example(), SpecLimits(actions=4))
    with pytest.raises(BadInput, match="actions: has 4 members; 3 is the limit"):
        parse_spec(example(), SpecLimits(actions=3))
    with pytest.raises(TooLarge):
        parse_spec(example(), SpecLimits(state_bytes=20))
    with pytest.raises(TooLarge):
        check_state_size({"a": "é" * 10}, 27)
    check_state_size({"a": "é" * 10}, 28)


# --- random specs -------------------------------------------------------------------------------------------

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
_random = st.recursive(
    json_values | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_members | _words, inner, max_size=4),
    max_leaves=12,
)


def refusal_message(raw: Any) -> str | None:
    try:
        parse_spec(raw)
    except HostError as refusal:
        return refusal.message
    return None


@rule("CV-10")
@given(st.dictionaries(_members, _random, max_size=5) | _random, st.sampled_from([None, *EXAMPLE]))
def test_random_spec_is_parsed_or_refused(change: Any, member: str | None) -> None:
    raw = change if member is None else example(**{member: change})
    before = copy.deepcopy(raw)
    message = refusal_message(raw)
    assert message is None or ": " in message or "larger" in message
    assert len(message or "") < 8_000
    assert raw == before


# --- all problems -------------------------------------------------------------------------------------------


@rule("RS-66")
def test_all_problems_of_a_spec_are_reported_together() -> None:
    raw = {
        "mod": "html",
        "toolPolicy": {"alow": [], "allow": ["*", "server-a__Read"]},
        "actions": {
            "deploy": {"kind": "tool.cal", "confrim": "always"},
            "read": {
                **CALL,
                "confirm": "alwys",
                "args": {"a": {"$value": "x"}, "b": "{{state.__x}}"},
                "saveMode": "x",
            },
            "set": {"kind": "state.patch", "patch": [{"op": "move"}, {"op": "add", "path": "a"}]},
        },
        "bindings": {"buttons.go": "deplo"},
        "refresh": [{"id": "r", "everyMs": 1, "action": "raed"}],
        "writable": ["a..b"],
    }
    with pytest.raises(BadInput) as refusal:
        parse_spec(raw)
    problems = {entry["path"]: entry["problem"] for entry in problems_of(refusal.value)}
    assert list(problems) == [
        "mod",
        "toolPolicy.alow",
        "toolPolicy.allow[0]",
        "actions.deploy.kind",
        "actions.deploy.confrim",
        "actions.read.confirm",
        "actions.read.args.a.$value",
        "actions.read.args.b",
        "actions.read.saveMode",
        "actions.set.patch[0].op",
        "actions.set.patch[1].path",
        "bindings.buttons.go",
        "refresh[0].everyMs",
        "refresh[0].action",
        "writable[0]",
    ]
    assert problems["mod"].startswith("is unknown; did you mean `mode`?")
    assert "did you mean `allow`?" in problems["toolPolicy.alow"]
    assert "did you mean `tool.call`?" in problems["actions.deploy.kind"]
    assert "did you mean `confirm`?" in problems["actions.deploy.confrim"]
    assert "did you mean `always`?" in problems["actions.read.confirm"]
    assert "did you mean `deploy`?" in problems["bindings.buttons.go"]
    assert "did you mean `read`?" in problems["refresh[0].action"]
    lines = refusal.value.message.split("\n")
    assert lines[0] == "The spec has 15 problems:"
    assert lines[1:] == [f"- {path}: {problem}" for path, problem in problems.items()]


@rule("RS-66")
def test_number_of_reported_problems_is_bounded() -> None:
    with pytest.raises(BadInput) as refusal:
        parse_spec({"actions": {f"a{number}": {} for number in range(30)}})
    assert len(list(problems_of(refusal.value))) == MAX_PROBLEMS
    assert refusal.value.message.endswith("\n- and 10 more.")
    assert refusal.value.details["more"] == 10


@rule("RS-66")
def test_spec_full_of_misspelt_words_is_refused_quickly() -> None:
    actions = {f"action{number}": {**CALL, "saveAss": "a", "y" * 500: 1} for number in range(500)}
    bindings = {f"buttons.{number}": f"actio{number}" for number in range(1_000)}

    def read() -> None:
        with pytest.raises(BadInput):
            parse_spec({"actions": actions, "bindings": bindings})

    assert least_seconds(read, enough=1) < 1
