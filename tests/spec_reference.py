"""The reference of a canvas spec: every member with its type, limits, default and an example.

Printed into docs/reference/spec.md by `tests.docs_tables`. `tests.test_docs` checks each row against the
code: the members are exactly the known ones, every example is valid, and every default equals leaving the
member out.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import pytest

from easel.core.canvas import actions, spec
from easel.core.canvas.actions import ActionKind, Approval, Confirm, Parse, WhenMissing
from easel.core.canvas.spec import DEFAULT_LIMITS, CanvasSpec, Mode, parse_spec
from easel.core.secret.secret import MAX_USED
from easel.core.values import patch, paths, template
from easel.core.values.paths import SaveMode
from easel.core.web.hosts import MAX_HOSTS
from easel.errors import BadInput

REQUIRED: Final = object()  # the member has no default and must be given
ABSENT: Final = object()  # the member has no default and may be left out
ID = "an id: 1 to 128 letters, digits and `. _ : -`, a letter or digit first"
DOT_PATH = f"a dot path: at most {paths.MAX_PATH_DEPTH} parts of letters, digits, `_` and `-`"


@dataclass(frozen=True)
class Member:
    name: str
    type: str
    default: Any
    example: Any
    description: str


def one_of(choices: Any) -> str:
    return " or ".join(f"`{choice.value}`" for choice in choices)


def text(maximum: int, minimum: int = 0) -> str:
    return f"text, {minimum} to {maximum:,} characters"


LOOK = {"kind": "tool.call", "tool": "gsv__Clock"}
BOOLEAN = "`true` or `false`"
TITLE, DESCRIPTION = text(actions.MAX_TITLE_LENGTH), text(actions.MAX_DESCRIPTION_LENGTH)

RESULT_MEMBERS = [
    Member(
        "saveAs",
        DOT_PATH,
        ABSENT,
        "deploy.last",
        "Where to save the result in the state, as `{ok, result, finishedAt}`. By default it is not saved.",
    ),
    Member(
        "saveMode",
        one_of(SaveMode),
        "replace",
        "append",
        "How to save: `replace` the value, `merge` the members of an object, or `append` to a list. "
        "Needs `saveAs`.",
    ),
    Member(
        "parse",
        one_of(Parse),
        ABSENT,
        "json",
        "Saves the value of a text in place of the text: of `result.output`, `result.body`, or a `result` "
        "that is text. `csv` gives a list of objects by the names of its first row. Text that was cut off or "
        "has another format fails the action. Needs `saveAs`.",
    ),
    Member(
        "timeoutMs",
        f"whole number, 1 to {actions.MAX_TIMEOUT_MS:,}",
        ABSENT,
        120_000,
        "Time after which the action fails. By default the limits of the server apply.",
    ),
]
SPEC_MEMBERS = [
    Member("version", f"`{spec.VERSION}`", spec.VERSION, spec.VERSION, "Version of this format."),
    Member("mode", one_of(Mode), "html", "html", "Language of the page."),
    Member(
        "title", TITLE, ABSENT, "Deploy Cockpit", "For readers of the spec; the canvas has its own title."
    ),
    Member("description", DESCRIPTION, ABSENT, "One page for a deploy.", "For readers of the spec."),
    Member("$schema", TITLE, ABSENT, "https://example.org/canvas.json", "For editors; ignored."),
    Member(
        "toolPolicy",
        "object, [see below](#toolpolicy)",
        {},
        {"allow": ["gsv__Clock"]},
        "What the actions and the page may access. By default nothing.",
    ),
    Member(
        "state",
        f"object, at most {DEFAULT_LIMITS.state_bytes:,} bytes (`EASEL_MAX_STATE_BYTES`)",
        {},
        {"service": "api"},
        "The initial state of the canvas. A later spec does not reset the state.",
    ),
    Member(
        "actions",
        f"object of [actions](#actionsname) by name, at most {DEFAULT_LIMITS.actions}",
        {},
        {"look": LOOK},
        f"The actions of the canvas. A name is {ID}.",
    ),
    Member(
        "bindings",
        f"object of action names by control, at most {DEFAULT_LIMITS.bindings:,}",
        {},
        {"buttons.deployNow": "look"},
        'The action that a control of the page runs: `<button data-gsv-control="buttons.deployNow">`. The '
        "page names the control; only the spec decides what it does. A control's name is 1 to "
        f"{spec.MAX_CONTROL_LENGTH} printable characters.",
    ),
    Member(
        "refresh",
        f"list of [jobs](#refresh), at most {DEFAULT_LIMITS.refreshes}",
        [],
        [{"id": "poll", "everyMs": 30_000, "action": "look"}],
        "Actions that run at intervals.",
    ),
    Member(
        "writable",
        f"list of dot paths, at most {DEFAULT_LIMITS.bindings:,}",
        ABSENT,
        ["service", "deploy.to"],
        "Paths of the state that the fields of the page (`data-gsv-model`) may write. By default every "
        "member of `state`; `[]`: none.",
    ),
]
GROUPS: dict[str, tuple[str, list[Member]]] = {
    # a place in the spec: its heading and its members
    "": ("The spec", SPEC_MEMBERS),
    "toolPolicy": (
        "toolPolicy",
        [
            Member(
                "allow",
                f"list of tools, at most {DEFAULT_LIMITS.tools}",
                [],
                ["gsv__Clock", "local__Bash"],
                "Tools that the actions may call, by their exact names; there are no patterns.",
            ),
            Member(
                "connect",
                f"list of origins, at most {DEFAULT_LIMITS.tools}",
                [],
                ["https://status.example.com"],
                "Origins that the page may connect to: public `https://` and `wss://` names without a path.",
            ),
            Member(
                "secrets",
                f"list of names, at most {MAX_USED}",
                [],
                ["DEPLOY_KEY"],
                "The [secrets](../guide/secrets.md) that the actions may use.",
            ),
            Member(
                "hosts",
                f"list of hosts, at most {MAX_HOSTS}",
                [],
                ["api.example.com", "*.example.org", "db.example.com:8443"],
                "Hosts that the actions may [fetch from](../guide/actions.md#http). `*.` matches every "
                "name below a domain; without a port: that of the scheme.",
            ),
            Member(
                "shell",
                "object of lists of arguments, by tool",
                {},
                {"laptop__Print": ["line"]},
                "Arguments that a [shell](../guide/actions.md#values-in-commands) reads too.",
            ),
            Member(
                "data",
                "object of lists of arguments, by tool",
                {},
                {"laptop__Publish": ["payload"]},
                "Arguments that no shell reads, of a tool that looks like one; counts when a person has "
                "accepted the spec.",
            ),
        ],
    ),
    "action": (
        "actions.NAME",
        [
            Member(
                "kind", one_of(ActionKind), REQUIRED, "tool.call", "Each kind has its own members, below."
            ),
            Member(
                "title",
                text(actions.MAX_TITLE_LENGTH, 1),
                ABSENT,
                "Deploy",
                "Label of the button on a generated page and in a confirmation. By default the name.",
            ),
            Member("description", DESCRIPTION, ABSENT, "Rolls out the version above.", "For readers."),
            Member(
                "confirm",
                one_of(Confirm),
                "auto",
                "always",
                "Whether a person must confirm. `auto`: unless the tool is read-only.",
            ),
            Member(
                "approval",
                one_of(Approval),
                "anyone",
                "another",
                "Of a team's canvas: `another` asks each time, and who asked for the call cannot approve it. "
                "Not beside `confirm: never`; a `state.patch` needs `confirm: always`.",
            ),
        ],
    ),
    "tool.call": (
        "tool.call",
        [
            Member(
                "tool", "the exact name of a tool", REQUIRED, "gsv__Clock", "Must be in `toolPolicy.allow`."
            ),
            Member(
                "args",
                "object",
                {},
                {"value": "Hello {{state.name}}"},
                "Arguments of the tool. `{{state.path}}`, `{{input.path}}` and `{{runtime.now}}` in texts "
                f"are replaced by values, at most {template.MAX_PLACEHOLDERS} in one text. "
                '`{"$value": "state.path"}` is replaced by the value itself, and `{"$literal": …}` by its '
                "content.",
            ),
            *RESULT_MEMBERS,
            Member(
                "missing",
                one_of(WhenMissing),
                "fail",
                "empty",
                "What a missing value does in a shell argument and in the `url` of a fetch. In other "
                "arguments it is empty text.",
            ),
            Member(
                "text",
                f"list of placeholders, at most {actions.MAX_NAMED}",
                [],
                ["state.name"],
                "Placeholders that take [any text](../guide/actions.md#values-in-commands) in a command: it "
                "reaches the command as a variable. Others must be plain there.",
            ),
            Member(
                "allowOptions",
                f"list of placeholders, at most {actions.MAX_NAMED}",
                [],
                ["state.name"],
                "Placeholders whose values may start with `-` in a command.",
            ),
            Member(
                "secrets",
                f"list of names, at most {MAX_USED}",
                [],
                ["DEPLOY_KEY"],
                "Secrets that are variables of the command; only for tools with `x-secrets`, such as Bash.",
            ),
        ],
    ),
    "session.send": (
        "session.send",
        [
            Member(
                "message",
                text(actions.MAX_MESSAGE_LENGTH, 1),
                REQUIRED,
                "What of {{state.service}}?",
                "The message, with placeholders as in `args`.",
            ),
            Member(
                "sessionKey",
                "`agent:{agentId}:{name}`",
                ABSENT,
                "agent:main:main",
                "The session, or `main` for the agent's main one. By default that of the canvas.",
            ),
            *RESULT_MEMBERS,
        ],
    ),
    "state.patch": (
        "state.patch",
        [
            Member(
                "patch",
                f"list of JSON Patch operations, at most {patch.MAX_OPERATIONS:,}: {one_of(patch.Op)}",
                REQUIRED,
                [{"op": "replace", "path": "/status", "value": "idle"}],
                'Changes of the state, applied completely or not at all. `{"$value": "input.path"}` in a '
                "`value` is replaced by that value.",
            ),
        ],
    ),
    "refresh": (
        "refresh",
        [
            Member("id", ID, REQUIRED, "pollLogs", "Name of the job, unique in the canvas."),
            Member(
                "everyMs",
                f"whole number, {spec.MIN_REFRESH_MS:,} to {spec.MAX_REFRESH_MS:,}",
                REQUIRED,
                30_000,
                "The interval.",
            ),
            Member(
                "action",
                "the name of an action",
                REQUIRED,
                "look",
                "The action to run; it must not need confirmation.",
            ),
            Member("enabled", BOOLEAN, True, False, "Whether the job runs."),
            Member(
                "onlyWatched",
                BOOLEAN,
                False,
                True,
                "Whether it runs only while a view of the canvas is open.",
            ),
        ],
    ),
}
KINDS = {
    "tool.call": LOOK,
    "session.send": {"kind": "session.send", "message": "Hello"},
    "state.patch": {"kind": "state.patch", "patch": []},
}
MINIMAL_SPEC: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["gsv__Clock"]},
    "actions": {"look": LOOK},
}


def with_member(place: str, name: str, value: Any) -> dict[str, Any]:
    """Return a valid spec with this member, or without it if the value is ABSENT."""
    raw = deepcopy(MINIMAL_SPEC)
    target: dict[str, Any] = raw
    if place == "toolPolicy":
        target = raw["toolPolicy"]
    elif place == "refresh":
        target = {"id": "poll", "everyMs": 1_000, "action": "look"}
        raw["refresh"] = [target]
    elif place:
        target = raw["actions"]["more"] = deepcopy(KINDS.get(place, LOOK))
        if name in ("saveMode", "parse"):
            target["saveAs"] = "last"
        if name in {"text", "allowOptions"}:
            target["args"] = {"value": "{{state.name}}"}
        if name == "secrets":
            raw["toolPolicy"]["secrets"] = ["DEPLOY_KEY"]
    target.pop(name, None) if value is ABSENT else target.update({name: value})
    return raw


def read(place: str, name: str, value: Any) -> CanvasSpec:
    return parse_spec(with_member(place, name, value))


def known_members(place: str) -> set[str]:
    """Return the members that the error for an unknown member lists."""
    with pytest.raises(BadInput) as error:
        read(place, "misspelt", 1)
    found = re.search(r"known are (.*)\.$", error.value.message)
    assert found, error.value.message
    return set(found[1].split(", "))


def listed_members(place: str) -> set[str]:
    common = {member.name for member in GROUPS["action"][1]} if place in KINDS else set[str]()
    return common | {member.name for member in GROUPS[place][1]}


def format_value(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def format_default(member: Member) -> str:
    if member.default is REQUIRED:
        return "required"
    return "–" if member.default is ABSENT else format_value(member.default)
