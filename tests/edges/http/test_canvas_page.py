"""The page of a canvas over HTTP: its shell, and the headers of every response of a view."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from easel.edges.http.canvas_html import csp_hash
from tests.edges.http.canvas_pages import (
    create_canvas,
    policy,
    stranger,
    view_of,
)
from tests.requirements import case, rule

if TYPE_CHECKING:
    import httpx2

    from tests.edges.http.live import LiveEasel

__all__ = ["stranger"]  # a fixture


# --- the shell ----------------------------------------------------------------------------------------------


@rule("CV-50", "RS-58")
@case("U8")
def test_shell_frames_only_its_views_and_cannot_be_framed(small_easel: LiveEasel) -> None:
    name = create_canvas(small_easel, title="A <b>title</b> & more")
    answer = small_easel.get(f"/canvas/main/{name}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "A &lt;b&gt;title&lt;/b&gt; &amp; more" in answer.text
    directives = policy(answer)
    view = re.search(r'data-view="([^"]+)" data-isolated="([^"]+)"', answer.text)
    assert view
    assert (
        directives["frame-src"],
        directives["frame-ancestors"],
        directives["default-src"],
        directives["script-src"],
    ) == (
        f"{view[1]} {view[2]}",
        "'none'",
        "'none'",
        "'self'",
    )
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"


def test_sign_in_redirects_to_the_canvas(small_easel: LiveEasel, stranger: httpx2.Client) -> None:
    name = create_canvas(small_easel)
    first = stranger.get(f"/canvas/main/{name}")
    assert "Sign in" in first.text
    assert "canvas-view" not in first.text
    assert f'value="/canvas/main/{name}"' in first.text
    wrong = stranger.post("/sign-in", data={"token": "no", "next": f"/canvas/main/{name}"})
    assert f'value="/canvas/main/{name}"' in wrong.text
    answer = stranger.post("/sign-in", data={"token": small_easel.token, "next": f"/canvas/main/{name}"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/canvas/main/{name}")
    assert "data-view" in stranger.get(f"/canvas/main/{name}").text


OTHER_TARGETS = [
    "//evil.example",
    "https://evil.example",
    "/canvas/../sign-out",
    "/\\evil.example",
    "/canvas/a/b?x",
    '"><script>',
    "/canvas/a/b/c",
]


def test_sign_in_redirects_to_no_other_target(small_easel: LiveEasel) -> None:
    with small_easel.stranger() as http:
        for target in OTHER_TARGETS:
            answer = http.post("/sign-in", data={"token": small_easel.token, "next": target})
            assert answer.headers["location"] == "/"
            assert target not in http.post("/sign-in", data={"token": "no", "next": target}).text


@pytest.mark.parametrize("path", ["/canvas/main/unknown", "/canvas/other/{name}", "/canvas/main/%3Cb%3E"])
def test_unknown_canvas_has_an_error_page(small_easel: LiveEasel, path: str) -> None:
    answer = small_easel.get(path.format(name=create_canvas(small_easel)))
    assert answer.status_code == 404
    assert "There is no canvas" in answer.text
    assert "<b>" not in answer.text


# --- headers of every response ------------------------------------------------------------------------------

FILES = [
    # path                         status  type
    ("assets/index.html",          200, "text/html; charset=utf-8"),
    ("assets/index.html?x=1",      200, "text/html; charset=utf-8"),
    ("assets/more/page.html",      200, "text/html; charset=utf-8"),
    ("assets/index.js",            200, "text/javascript; charset=utf-8"),
    ("assets/index.js?v=2&x[]=y",  200, "text/javascript; charset=utf-8"),
    ("gsv.js",                     200, "text/javascript; charset=utf-8"),
    ("generated.js",               200, "text/javascript; charset=utf-8"),
    ("generated.css",              200, "text/css; charset=utf-8"),
    ("assets/a.svg",               200, "image/svg+xml; charset=utf-8"),
    ("assets/a.xml",               200, "application/octet-stream"),
    ("assets/a.xhtml",             200, "application/octet-stream"),
    ("assets/a.json",              200, "application/json; charset=utf-8"),
    ("assets/a.css",               200, "text/css; charset=utf-8"),
    ("assets/plain",               200, "application/octet-stream"),
    ("assets/with%20space.txt",    200, "text/plain; charset=utf-8"),
    ("assets/missing.html",        404, "application/json"),
    ("assets/",                    400, "application/json"),
    ("assets",                     404, "application/json"),
    ("",                           404, "application/json"),
    ("sdk/gsv.js",                 404, "application/json"),
    ("assets/%00",                 400, "application/json"),
]  # fmt: skip


@case("U3")
@rule("RS-58")
def test_every_response_of_a_view_has_a_strict_policy_and_its_type(small_easel: LiveEasel) -> None:
    view = view_of(small_easel, create_canvas(small_easel))
    with small_easel.stranger() as http:
        for path, status, kind in FILES:
            check_isolated(http.get(view + path), status, kind)
            head = http.head(view + path)
            assert head.status_code == status, path
            assert policy(head)["default-src"] == "'none'"


def check_isolated(answer: httpx2.Response, status: int, kind: str) -> None:
    assert (answer.status_code, answer.headers.get("content-type")) == (status, kind), answer.text[:300]
    directives = policy(answer)
    assert (directives["default-src"], directives["form-action"], directives["base-uri"]) == (
        "'none'",
        "'none'",
        "'none'",
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "connection-allowlist" in answer.headers
    assert "set-cookie" not in answer.headers
    is_page = kind.startswith("text/html")
    assert directives["sandbox"] == ("allow-scripts allow-forms" if is_page else ""), (
        "also sandboxed when opened directly"
    )
    assert ("script-src" in directives) is is_page


@case("U3")
def test_early_refusals_of_a_view_are_isolated(small_easel: LiveEasel) -> None:
    view = view_of(small_easel, create_canvas(small_easel))
    with small_easel.stranger() as http:
        check_isolated(http.post(f"{view}assets/index.html"), 405, "application/json")
        check_isolated(http.put(f"{view}assets/index.html", content=b"x"), 405, "application/json")
        check_isolated(http.get("/canvas-view/no-token/assets/index.html"), 404, "application/json")
        check_isolated(http.get("/canvas-view/"), 404, "application/json")
        check_isolated(
            http.get(f"{view}assets/index.html", headers={"host": "evil.example"}), 421, "application/json"
        )
        check_isolated(
            http.get(f"{view}assets/index.html", headers={"origin": "https://evil.example"}),
            403,
            "application/json",
        )
        redirect = http.get(view.rstrip("/"), follow_redirects=False)
        assert redirect.status_code in (307, 404)
        assert policy(redirect)["default-src"] == "'none'"


@case("U3")
def test_internal_error_of_a_view_is_isolated(
    small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = view_of(small_easel, create_canvas(small_easel))

    async def fail(*_: object) -> None:
        raise RuntimeError("injected fault")

    monkeypatch.setattr(type(small_easel.instances[0].services.assets), "read", fail)
    with small_easel.stranger() as http:
        answer = http.get(f"{view}assets/a.svg")
    check_isolated(answer, 500, "application/json")
    assert "injected fault" not in answer.text


def test_page_may_load_only_from_its_own_view(small_easel: LiveEasel, stranger: httpx2.Client) -> None:
    view = view_of(small_easel, create_canvas(small_easel))
    answer = stranger.get(f"{view}assets/index.html")
    here = f"{small_easel.base_url}{view}"
    directives = policy(answer)
    assert directives["script-src"] == f"{here} '{csp_hash('let inline = 1;')}'"
    assert (directives["connect-src"], directives["font-src"], directives["frame-ancestors"]) == (
        here,
        f"{here} data:",
        small_easel.base_url,
    )
    assert (directives["frame-src"], directives["worker-src"], directives["object-src"]) == (
        "'none'",
        "'none'",
        "'none'",
    )
    assert answer.headers["connection-allowlist"] == f'("{here}*")'


@case("R7")
@rule("RS-59")
def test_page_may_reach_listed_origins_only_when_accepted(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    connect = ["https://api.example.com", "wss://live.example.com:8443"]
    name = create_canvas(small_easel, spec={"toolPolicy": {"connect": connect}})
    page = f"{view_of(small_easel, name)}assets/index.html"
    directives = policy(stranger.get(page))
    assert directives["connect-src"].split()[1:] == connect
    assert directives["img-src"].split()[1:] == ["data:", "blob:", connect[0]]
    small_easel.sql(f"update canvases set is_accepted = 0 where canvas_id = '{name}'")
    unaccepted = stranger.get(page)
    assert (
        "example.com"
        not in unaccepted.headers["content-security-policy"] + unaccepted.headers["connection-allowlist"]
    )
