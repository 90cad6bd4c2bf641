"""Actions that fetch: their addresses, their hosts, and when they ask a person. RS-74"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.action.execution import ExecutionStatus
from easel.core.action.policy import check_templates, needs_consent
from easel.core.action.resolution import ResolvedCall
from easel.core.canvas.spec import parse_spec
from easel.core.web.hosts import FETCH, OWN_PAGE
from easel.errors import BadInput, Forbidden
from easel.fetch.tool import FetchTool
from tests.core.action.examples import RULES, canvas, start
from tests.core.canvas.specs import TOOLS
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.core.canvas.canvas import CanvasSnapshot

API = "https://api.example.com"
DEFINITION = FetchTool([], [], max_body_bytes=1).definition
DEFINITIONS = {**TOOLS, FETCH: DEFINITION}
FETCHES = replace(RULES, definitions=DEFINITIONS)


def fetching(url: Any, method: Any = "GET", *, accepted: bool = True, **more: Any) -> CanvasSnapshot:
    action = {"kind": "tool.call", "tool": FETCH, "args": {"method": method, "url": url}, **more}
    policy = {"allow": [FETCH], "hosts": ["api.example.com"]}
    return canvas(actions={"get": action}, toolPolicy=policy, refresh=..., bindings=..., accepted=accepted)


def with_spec_text(snapshot: CanvasSnapshot, text: str, other: str) -> CanvasSnapshot:
    changed = snapshot.canvas.spec_json.replace(text, other)
    return replace(snapshot, canvas=replace(snapshot.canvas, spec_json=changed))


def check(snapshot: CanvasSnapshot) -> list[str]:
    return check_templates(parse_spec(snapshot.canvas.spec), DEFINITIONS)


def filled(url: str, value: Any, **more: Any) -> Any:
    started = start(fetching(url, **more), "get", FETCHES, input={"x": value})
    if started.problem is not None:
        raise started.problem
    assert isinstance(started.work, ResolvedCall)
    return started.work.args["url"]


@rule("RS-74")
@pytest.mark.parametrize(
    "url",
    [
        *(
            "{{input.x}}",
            "{{input.x}}://api.example.com/",
            "https://{{input.x}}/",
            "https://{{input.x}}.com/",
        ),
        *("https://api.example.com{{input.x}}", "https://api.example.com:{{input.x}}/", "http{{input.x}}/"),
        *(
            "https://{{input.x}}@api.example.com/",
            "https:{{input.x}}//api.example.com/",
            {"$value": "input.x"},
        ),
        *(
            {"$secret": "KEY"},
            "https://api.example.com/../{{input.x}}",
            "https://api.example.com/a b{{input.x}}",
        ),
        *("https://api.example.com\\{{input.x}}/", 7, "easel:/{{input.x}}", "easel:/readyz", "https:///x"),
    ],
)
def test_placeholder_in_scheme_or_host_is_refused_on_storing(url: Any) -> None:
    snapshot = fetching(url)
    if isinstance(url, dict) and "$secret" in url:
        snapshot = with_spec_text(snapshot, '"hosts"', '"secrets":["KEY"],"hosts"')
    with pytest.raises(BadInput, match=r"actions\.get\.args\.url: must "):
        check(snapshot)


@rule("RS-74")
def test_host_that_the_canvas_does_not_list_is_refused_on_storing() -> None:
    assert check(fetching(f"{API}/x")) == []
    with pytest.raises(BadInput, match=r"toolPolicy\.hosts does not list evil\.org"):
        check(fetching("https://evil.org/{{input.x}}"))


@rule("RS-74")
@pytest.mark.parametrize(
    "url, value, result",
    [
        ("/items/{{input.x}}", "a b/c?d#e&f", "/items/a%20b%2Fc%3Fd%23e%26f"),
        ("/items/{{input.x}}.json?q={{input.x}}", "ü=&", "/items/%C3%BC%3D%26.json?q=%C3%BC%3D%26"),
        ("?q={{input.x}}&n=1", "a+b#c&n=2", "/?q=a%2Bb%23c%26n%3D2&n=1"),
        ("/{{input.x}}", "https://evil.org/", "/https%3A%2F%2Fevil.org%2F"),
        ("/{{input.x}}", "@evil.org", "/%40evil.org"),
        ("/x?q={{input.x}}", "", "/x?q="),
        ("/x?q={{input.x}}", "../..", "/x?q=..%2F.."),
        ("/{{input.x}}", {"a": [1, True]}, "/%7B%22a%22%3A%5B1%2Ctrue%5D%7D"),
        ("/{{input.x}}", "\r\nHost: x\ud800", "/%0D%0AHost%3A%20x%3F"),
    ],
)
def test_value_stays_within_its_part_of_the_address(url: str, value: Any, result: str) -> None:
    assert filled(API + url, value) == API + result


@rule("RS-74", "RS-57")
@pytest.mark.parametrize(
    "url, value, problem",
    [
        ("/items/{{input.x}}/del", "..", "must not have `.` or `..`"),
        ("/items/{{input.x}}", "../../admin", "must not have `.` or `..`"),
        ("/items/.{{input.x}}", ".", "must not have `.` or `..`"),
        ("/items/{{input.x}}", "a\\..\\b", "must not have `.` or `..`"),
        ("/items/{{input.x}}", "", "{{input.x}} has no value"),
        ("/items/{{input.x}}", None, "{{input.x}} has no value"),
        ("/items?q={{input.x}}", None, "{{input.x}} has no value"),
        ("/items?q={{input.x}}", "a" * 8_000, "at most 8000 characters"),
    ],
)
def test_value_that_leads_elsewhere_fails_the_action(url: str, value: Any, problem: str) -> None:
    with pytest.raises(BadInput) as error:
        filled(API + url, value)
    assert problem in error.value.message


@rule("RS-57")
def test_missing_value_is_empty_where_the_action_says_so() -> None:
    assert filled(f"{API}/items/{{{{input.x}}}}", None, missing="empty") == f"{API}/items/"


@rule("RS-74", "RS-45")
@pytest.mark.parametrize(
    "method, asks",
    [
        *(("GET", False), ("HEAD", False), ("POST", True), ("DELETE", True), ("get", True)),
        *(("{{input.x}}", True), ("GE{{input.x}}", True), ({"$value": "input.x"}, True)),
    ],
)
def test_only_a_literal_get_or_head_counts_as_read_only(method: Any, *, asks: bool) -> None:
    spec = parse_spec(fetching(f"{API}/x", method).canvas.spec)
    assert needs_consent(spec.actions["get"], DEFINITION) is asks


@rule("RS-74", "RS-59")
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("is_attended", [True, False])
def test_fetch_is_refused_and_not_asked_until_a_person_accepts_the_hosts(
    method: str, *, is_attended: bool
) -> None:
    snapshot = fetching(f"{API}/x", method, accepted=False)
    with pytest.raises(Forbidden, match="reaches a host, and no person has accepted"):
        start(snapshot, "get", FETCHES, is_attended=is_attended)


@rule("RS-74")
def test_own_page_needs_no_host_and_no_acceptance() -> None:
    assert check(fetching(OWN_PAGE)) == []
    started = start(fetching(OWN_PAGE, accepted=False), "get", FETCHES)
    assert started.execution.status is ExecutionStatus.RUNNING


@rule("CV-40", "RS-74")
def test_fetch_needs_the_tool_in_the_policy() -> None:
    snapshot = with_spec_text(fetching(OWN_PAGE), f'"allow":["{FETCH}"]', '"allow":[]')
    with pytest.raises(Forbidden, match=r"toolPolicy\.allow of the canvas does not list"):
        start(snapshot, "get", FETCHES)
