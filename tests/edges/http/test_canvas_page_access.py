"""View tokens, and which origins may read the files of a view."""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from easel.edges.http.routes import ROUTES
from easel.host.auth.tokens import Tokens
from tests.edges.http.canvas_pages import (
    ASSETS,
    call,
    create_canvas,
    policy,
    stranger,
    view_of,
)
from tests.edges.http.live import WAIT_SECONDS, LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER, person
from tests.support.processes import free_port
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from pathlib import Path

    import httpx2

__all__ = ["stranger"]  # a fixture


# --- tokens -------------------------------------------------------------------------------------------------


@case("U9")
def test_view_needs_no_cookie_and_gives_access_to_one_canvas(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    name, other = create_canvas(small_easel), create_canvas(small_easel, assets={"assets/secret.txt": "s"})
    view = view_of(small_easel, name)
    assert stranger.get(f"{view}assets/index.js").text == "let a = 1;"
    assert stranger.get(f"{view}assets/secret.txt").status_code == 404
    assert stranger.get(f"{view_of(small_easel, other)}assets/secret.txt").text == "s"
    for path in ("/api/runs", f"/canvas/main/{name}", "/api/audit"):
        with_token = stranger.get(path, headers={"authorization": f"Bearer {view.split('/')[2]}"})
        assert with_token.status_code == 401 or "Sign in" in with_token.text


def test_forged_or_expired_token_is_refused(small_easel: LiveEasel, stranger: httpx2.Client) -> None:
    name = create_canvas(small_easel)
    pages = small_easel.instances[0].services.pages
    started = time.time()
    token, until = pages.new_token(THE_OWNER, name, started)
    assert stranger.get(f"/canvas-view/{token}/assets/index.js").status_code == 200
    ends, user, canvas_id, sign_in, signature = token.split(".")
    rest = f"{canvas_id}.{sign_in}.{signature}"
    forged = [
        f"{int(ends) + 1}.{user}.{rest}", f"{ends}.{user}.{encode('other')}.{sign_in}.{signature}",
        f"{ends}.{encode('mallory')}.{rest}", f"{ends}.{user}.{canvas_id}.{encode('tok_x')}.{signature}",
        f"{ends}.{user}.{canvas_id}.{sign_in}.", f"{ends}.{user}.{canvas_id}", token[:-1], token + "A",
        signature, "", ".", "...", "....", "a.b.c.d.e", "%00", quote("ü.ü.ü.ü.ü"), "x" * 5000,
    ]  # fmt: skip
    for forged_token in forged:
        answer = stranger.get(f"/canvas-view/{forged_token}/assets/index.js")
        assert answer.status_code == 404, forged_token
        assert name not in answer.text
    old, _ = pages.new_token(THE_OWNER, name, started - (until - started) - 1)
    assert stranger.get(f"/canvas-view/{old}/assets/index.js").status_code == 404
    foreign, _ = pages.new_token(person("mallory", "mallory"), name, time.time())
    assert stranger.get(f"/canvas-view/{foreign}/assets/index.js").status_code == 404, (
        "the canvas of another user"
    )


@case("O9")
def test_view_ends_with_the_token_it_was_issued_for(easel: LiveEasel) -> None:
    name = create_canvas(easel)
    instance = easel.instances[0]
    tokens = Tokens(instance.opened.tokens, instance.services.audit)
    token, secret = easel.do(tokens.create("owner", "user"))
    with easel.stranger() as http:
        shell = http.get(f"/canvas/main/{name}", headers={"authorization": f"Bearer {secret}"})
        view = re.search(r'data-view="([^"]+)"', shell.text)
        assert view
        assert http.get(f"{view[1]}assets/index.js").status_code == 200
        easel.do(tokens.revoke(token.token_id))
        address = f"{view[1]}assets/index.js"
        wait_for_sync(lambda: http.get(address).status_code == 404, within=WAIT_SECONDS, what="the view ends")


def encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def test_view_token_is_valid_on_every_instance_but_not_with_another_owner_token(
    two_edges: LiveEasel, tmp_path: Path
) -> None:
    name = create_canvas(two_edges)
    view = view_of(two_edges, name)
    with two_edges.stranger() as http:
        assert http.get(f"{two_edges.instances[1].base_url}{view}assets/index.js").text == "let a = 1;"
    with LiveEasel(tmp_path, with_worker=False) as other:
        call(other, "canvas.create", canvasId=name, assets=ASSETS)
        assert other.get(f"{view}assets/index.js").status_code == 404


def test_view_token_is_not_logged_or_audited(
    small_easel: LiveEasel, stranger: httpx2.Client, logged: list[dict[str, Any]]
) -> None:
    view = view_of(small_easel, create_canvas(small_easel))
    path, token = f"assets/{new_session()}.js", view.split("/")[2]
    stranger.get(f"{view}assets/index.html")
    assert stranger.get(f"{view}{path}", headers={"origin": "https://evil.example"}).status_code == 403
    for name in ("assets/index.html", path):  # the line is written after the response
        wait_for_sync(
            lambda name=name: f"/canvas-view/…/{name}" in str(logged), within=20, what=f"{name} is logged"
        )
    assert token not in str(logged)
    wait_for_sync(lambda: path in refusals(small_easel), within=20, what="the refusal is audited")
    assert token not in refusals(small_easel)


def refusals(easel: LiveEasel) -> str:
    """Return the audit records of refusals."""
    return easel.get("/api/audit?action=guardrail.refused&limit=200").text


@case("U4")
@rule("CV-47")
def test_path_cannot_leave_the_assets_of_a_view(small_easel: LiveEasel) -> None:
    name, other = (
        create_canvas(small_easel),
        create_canvas(small_easel, assets={"assets/secret.txt": "the secret of another canvas"}),
    )
    view = view_of(small_easel, name)
    ups = [
        "../", "..%2f", "%2e%2e/", "%2e%2e%2f", "%252e%252e%252f", "..%5c", "%5c..%5c", "..\\", "....//",
        ".%2e/", "%u002e%u002e/", "%c0%ae%c0%ae/", "‥/", "．．/", "..;/", "..%00/", "%2e%2e%5c", "..%252f",
        "..%c0%af", "..%e2%88%95", "..%ef%bc%8f", "/../", "//../", "./../", "%2f..%2f",
    ]  # fmt: skip
    ends = [
        f"{other}/assets/secret.txt",
        f"canvases/{other}/assets/secret.txt",
        "secret.txt",
        "etc/passwd",
        "easel.db",
        "owner-token",
    ]
    request_count = 0
    host, port = small_easel.address
    # A client that does not normalize paths.
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=30)) as connection:
        for up in ups:
            for end in ends:
                for start in ("assets/", "", "assets/more/"):
                    path = quote(f"{view}{start}{up * 3}{end}", safe="/%\\;")
                    connection.request("GET", path)
                    answer = connection.getresponse()
                    body = answer.read()
                    assert answer.status in (400, 404), path
                    assert b"secret of another" not in body
                    assert b"root:" not in body
                    request_count += 1
    assert request_count >= 300


# --- origins ------------------------------------------------------------------------------------------------


@case("U9")
@rule("CV-05")
def test_api_refuses_requests_from_the_origin_of_a_canvas(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    stranger.get("/", params={"token": small_easel.token})
    assert stranger.get("/api/runs").status_code == 200, "the browser's cookie works"
    for row in ROUTES:
        if row.path.startswith("/canvas-view/"):
            continue
        path = re.sub(r"\{\w+(:path)?\}", "x", row.path)
        answer = stranger.request(row.method, path, headers={"origin": "null"})
        assert answer.status_code == 403, path
    wait_for_sync(lambda: "another site" in refusals(small_easel), within=20, what="the refusal is audited")


def test_page_with_an_opaque_origin_may_fetch_its_own_files(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    view = view_of(small_easel, create_canvas(small_easel))
    answer = stranger.get(
        f"{view}assets/a.json",
        headers={"origin": "null", "sec-fetch-site": "cross-site", "sec-fetch-dest": "empty"},
    )
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "null")
    assert "access-control-allow-credentials" not in answer.headers
    assert "access-control-allow-origin" not in stranger.get(f"{view}assets/a.json").headers


def test_our_own_pages_cannot_load_scripts_of_a_canvas(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    view = view_of(small_easel, create_canvas(small_easel))
    headers = {"sec-fetch-site": "same-origin"}
    for dest in ("script", "style", "serviceworker", "worker", "sharedworker", "empty", "object", "embed"):
        answer = stranger.get(f"{view}assets/index.js", headers={**headers, "sec-fetch-dest": dest})
        assert answer.status_code == 403, dest
    frame = stranger.get(f"{view}assets/index.html", headers={**headers, "sec-fetch-dest": "iframe"})
    assert frame.status_code == 200


def test_assets_may_have_their_own_host_name(tmp_path: Path) -> None:
    port = free_port()
    public, assets = f"http://easel.localhost:{port}", f"http://assets.localhost:{port}"
    with LiveEasel(
        tmp_path, with_worker=False, settings={"public_url": public, "assets_url": assets}
    ) as easel:
        name = create_canvas(easel)
        shell = easel.get(f"/canvas/main/{name}")
        view = re.search(r'data-view="([^"]+)" data-isolated="([^"]+)"', shell.text)
        assert view
        assert all(one.startswith(f"{assets}/canvas-view/") for one in view.groups())
        assert policy(shell)["frame-src"] == f"{view[1]} {view[2]}"
        path, host = view[1].removeprefix(assets), {"host": assets.removeprefix("http://")}
        page = easel.get(f"{path}assets/index.html", headers=host)
        assert page.status_code == 200
        assert (policy(page)["frame-ancestors"], policy(page)["connect-src"]) == (public, view[1])
        assert easel.get(f"{path}assets/index.html").status_code == 404, "only on the host of assets"
        for other in ("/", "/api/runs", f"/canvas/main/{name}", "/ui/easel.css", "/healthz"):
            assert easel.get(other, headers=host).status_code == 404, "nothing else on the host of assets"
