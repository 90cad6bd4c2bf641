"""The reference of a canvas's spec: every member with what it takes, its limits, its default and an example.

Printed into docs/reference/spec.md by `tests.test_docs`, which also holds each row to the code: the members are those that a spec may
have, every example is taken, and every default is what leaving it out means.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import pytest

from easel.core.canvas import actions, spec
from easel.core.canvas.actions import ActionKind, Confirm, WhenMissing
from easel.core.canvas.spec import DEFAULT_LIMITS, CanvasSpec, Mode, checked_spec
from easel.core.values import patch, paths, template
from easel.core.values.paths import SaveMode
from easel.errors import BadInput

NEEDED: Final = object()  # there is no default: it has to be there
ABSENT: Final = object()  # left out, it says nothing
ID = "an id: 1 to 128 letters, digits and `. _ : -`, a letter or digit first"
DOT_PATH = f"a dot path: at most {paths.MAX_PATH_DEPTH} parts of letters, digits, `_` and `-`"


@dataclass(frozen=True)
class Member:
    name: str
    takes: str
    default: Any
    example: Any
    says: str


def one_of(choices: Any) -> str:
    return " or ".join(f"`{one.value}`" for one in choices)


def text(longest: int, least: int = 0) -> str:
    return f"text, {least} to {longest:,} characters"


LOOK = {"kind": "tool.call", "tool": "gsv__Clock"}
SAVES = [
    Member("saveAs", DOT_PATH, ABSENT, "deploy.last", "Where the outcome goes in the state: `{ok, result, finishedAt}`. Left out: nowhere."),
    Member("saveMode", one_of(SaveMode), "replace", "append", "What happens to what is there. `merge` puts an object's members in; `append` adds to a list. Needs `saveAs`."),
    Member("timeoutMs", f"whole number, 1 to {actions.MAX_TIMEOUT_MS:,}", ABSENT, 120_000, "How long it may take before it fails. Left out: the server's own limits."),
]  # fmt: skip
GROUPS: dict[str, tuple[str, list[Member]]] = {
    # a place in the spec: what stands there, and its members
    "": ("The spec", [
        Member("version", f"`{spec.VERSION}`", spec.VERSION, spec.VERSION, "Of this form; there is one."),
        Member("mode", one_of(Mode), "html", "html", "What its page is written in."),
        Member("title", text(actions.MAX_TITLE_LENGTH), ABSENT, "Deploy Cockpit", "For people who read the spec; a canvas's own title is beside it."),
        Member("description", text(actions.MAX_DESCRIPTION_LENGTH), ABSENT, "One page for a deploy.", "For people."),
        Member("$schema", text(actions.MAX_TITLE_LENGTH), ABSENT, "https://example.org/canvas.json", "For editors; not read."),
        Member("toolPolicy", "object, [see below](#toolpolicy)", {}, {"allow": ["gsv__Clock"]}, "What its actions and its page may reach. Left out: nothing."),
        Member("state", f"object, at most {DEFAULT_LIMITS.state_bytes:,} bytes (`EASEL_MAX_STATE_BYTES`)", {}, {"service": "api"}, "What the canvas begins with. Later the state is its own, and a new spec does not set it back."),
        Member("actions", f"object of [actions](#actionsname) by name, at most {DEFAULT_LIMITS.actions} (`EASEL_MAX_CANVAS_ACTIONS`)", {}, {"look": LOOK}, f"What its buttons do. A name is {ID}."),
        Member("bindings", f"object of names of actions by control, at most {DEFAULT_LIMITS.bindings:,} (`EASEL_MAX_CANVAS_BINDINGS`)", {}, {"buttons.deployNow": "look"}, f"Which action a control of the page runs: `<button data-gsv-control=\"buttons.deployNow\">`. So the page names a control, and what it does is said in the spec alone. A control's name is 1 to {spec.MAX_CONTROL_LENGTH} printable characters."),
        Member("refresh", f"list of [jobs](#refresh), at most {DEFAULT_LIMITS.refreshes} (`EASEL_MAX_CANVAS_REFRESHES`)", [], [{"id": "poll", "everyMs": 30_000, "action": "look"}], "Actions that run by themselves."),
        Member("writable", f"list of dot paths, at most {DEFAULT_LIMITS.bindings:,}", ABSENT, ["service", "deploy.to"], "Where the page's fields (`data-gsv-model`) may write in the state. Left out: below every member of `state`; `[]`: nowhere."),
    ]),
    "toolPolicy": ("toolPolicy", [
        Member("allow", f"list of tools, at most {DEFAULT_LIMITS.tools} (`EASEL_MAX_CANVAS_TOOLS`)", [], ["gsv__Clock", "local__Bash"], "The tools that its actions may call, each by its exact name: there are no patterns."),
        Member("connect", f"list of origins, at most {DEFAULT_LIMITS.tools}", [], ["https://status.example.com"], "What its page may reach by itself: public `https://` and `wss://` names, without a path."),
    ]),
    "action": ("actions.NAME", [
        Member("kind", one_of(ActionKind), NEEDED, "tool.call", "What it is; each kind has members of its own, below."),
        Member("title", text(actions.MAX_TITLE_LENGTH, 1), ABSENT, "Deploy", "What its button says on a page that is made for the canvas, and what a person is asked about. Left out: its name."),
        Member("description", text(actions.MAX_DESCRIPTION_LENGTH), ABSENT, "Rolls out the version above.", "For people who read the spec."),
        Member("confirm", one_of(Confirm), "auto", "always", "Whether a person is asked first. `auto`: unless the tool is read-only."),
    ]),
    "tool.call": ("tool.call", [
        Member("tool", "a tool's exact name", NEEDED, "gsv__Clock", "Has to be in `toolPolicy.allow`."),
        Member("args", "object", {}, {"value": "Hello {{state.name}}"}, f"Its arguments. `{{{{state.path}}}}`, `{{{{input.path}}}}` and `{{{{runtime.now}}}}` in texts stand for values, at most {template.MAX_PLACEHOLDERS} in one text."),
        *SAVES,
        Member("missing", one_of(WhenMissing), "fail", "empty", "What a value that is not there does in an argument that a shell reads. Elsewhere it is the empty text."),
        Member("allowOptions", "`true` or `false`", False, True, "Whether a value in such an argument may begin with `-`."),
    ]),
    "session.send": ("session.send", [
        Member("message", text(actions.MAX_MESSAGE_LENGTH, 1), NEEDED, "What of {{state.service}}?", "What is sent; with placeholders, as in `args`."),
        Member("sessionKey", "`agent:{agentId}:{name}`", ABSENT, "agent:main:main", "To which session. Left out: the canvas's own."),
        *SAVES,
    ]),
    "state.patch": ("state.patch", [
        Member("patch", f"list of JSON Patch operations, at most {patch.MAX_OPERATIONS:,}: {one_of(patch.Op)}", NEEDED, [{"op": "replace", "path": "/status", "value": "idle"}], "What changes in the state, all of it or nothing."),
    ]),
    "refresh": ("refresh", [
        Member("id", ID, NEEDED, "pollLogs", "Its name, which no other job of the canvas has."),
        Member("everyMs", f"whole number, {spec.MIN_REFRESH_MS:,} to {spec.MAX_REFRESH_MS:,}", NEEDED, 30_000, "How often."),
        Member("action", "the name of an action", NEEDED, "look", "What runs. What needs a person's consent cannot."),
        Member("enabled", "`true` or `false`", True, False, "Whether it runs at all."),
        Member("onlyWatched", "`true` or `false`", False, True, "Whether it rests while nobody looks at the canvas."),
    ]),
}  # fmt: skip
KINDS = {
    "tool.call": LOOK,
    "session.send": {"kind": "session.send", "message": "Hello"},
    "state.patch": {"kind": "state.patch", "patch": []},
}
SMALLEST: dict[str, Any] = {"version": 1, "toolPolicy": {"allow": ["gsv__Clock"]}, "actions": {"look": LOOK}}


def with_member(place: str, name: str, value: Any) -> dict[str, Any]:
    """A spec that has this member; ABSENT: all that it needs around it, without the member."""
    whole = deepcopy(SMALLEST)
    target: dict[str, Any] = whole
    if place == "toolPolicy":
        target = whole["toolPolicy"]
    elif place == "refresh":
        target = {"id": "poll", "everyMs": 1_000, "action": "look"}
        whole["refresh"] = [target]
    elif place:
        target = whole["actions"]["more"] = deepcopy(KINDS.get(place, LOOK))
        if name == "saveMode":
            target["saveAs"] = "last"
    target.pop(name, None) if value is ABSENT else target.update({name: value})
    return whole


def read(place: str, name: str, value: Any) -> CanvasSpec:
    return checked_spec(with_member(place, name, value))


def known_members(place: str) -> set[str]:
    """As the code itself tells them to whoever misspells one."""
    with pytest.raises(BadInput) as refused:
        read(place, "misspelt", 1)
    found = re.search(r"known are (.*), and anything", refused.value.message)
    assert found, refused.value.message
    return set(found[1].split(", "))


def listed_members(place: str) -> set[str]:
    common = {member.name for member in GROUPS["action"][1]} if place in KINDS else set[str]()
    return common | {member.name for member in GROUPS[place][1]}


def shown(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def shown_default(member: Member) -> str:
    return (
        "has to be there"
        if member.default is NEEDED
        else "–"
        if member.default is ABSENT
        else shown(member.default)
    )
