"""The page of a canvas over HTTP: who gets it, what every answer of a view says of itself, and what a view does not open."""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from easel.core.principal import THE_OWNER, Principal
from easel.edges.http.canvas_html import MAX_INLINE, csp_hash, prepare_page
from easel.edges.http.routes import ROUTES
from easel.host.auth.tokens import Tokens
from easel.ids import UserId
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.processes import free_port
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2

PAGE = "<!doctype html><title>t</title><script>let inline = 1;</script><script src='index.js'></script>"
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
ASSETS = {
    "assets/index.html": PAGE, "assets/index.js": "let a = 1;", "assets/more/page.html": "<p>more", "assets/a.svg": SVG, "assets/a.xml": "<a/>",
    "assets/a.xhtml": "<html xmlns='http://www.w3.org/1999/xhtml'><script>alert(1)</script></html>", "assets/a.json": "{}", "assets/a.css": "p {}", "assets/plain": "x",
    "assets/with space.txt": "spaced",
}  # fmt: skip


def rpc(easel: LiveEasel, method: str, **params: Any) -> Any:
    answer = easel.post("/api/rpc", {"method": method, "params": params})
    assert answer.status_code == 200, answer.text
    return answer.json()


def canvas(easel: LiveEasel, **more: Any) -> str:
    name = new_session()
    rpc(
        easel,
        "canvas.create",
        canvasId=name,
        **{"spec": {"state": {"service": "api"}}, "assets": ASSETS, **more},
    )
    return name


def view_of(easel: LiveEasel, name: str) -> str:
    """The address of the view, as the shell has it, without the server."""
    found = re.search(r'data-view="([^"]+)"', easel.get(f"/canvas/main/{name}").text)
    assert found
    assert found[1].startswith(f"{easel.base_url}/canvas-view/")
    return found[1].removeprefix(easel.base_url)


@pytest.fixture
def stranger(small_easel: LiveEasel) -> Iterator[httpx2.Client]:
    with small_easel.stranger() as http:
        yield http


def policy(answer: httpx2.Response) -> dict[str, str]:
    assert len(answer.headers.get_list("content-security-policy")) == 1
    parts = [one.strip().partition(" ") for one in answer.headers["content-security-policy"].split(";")]
    return {name: value for name, _, value in parts}


# --- the shell ----------------------------------------------------------------------------------------------------------


@rule("CV-50", "RS-58")
@case("U8")
def test_the_page_of_a_canvas_pins_its_one_frame_and_cannot_be_framed(small_easel: LiveEasel) -> None:
    name = canvas(small_easel, title="A <b>title</b> & more")
    answer = small_easel.get(f"/canvas/main/{name}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "A &lt;b&gt;title&lt;/b&gt; &amp; more" in answer.text
    said = policy(answer)
    view = re.search(r'data-view="([^"]+)"', answer.text)
    assert view
    assert (said["frame-src"], said["frame-ancestors"], said["default-src"], said["script-src"]) == (
        view[1],
        "'none'",
        "'none'",
        "'self'",
    )
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"


def test_who_is_not_signed_in_signs_in_and_goes_on_to_the_canvas(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    name = canvas(small_easel)
    first = stranger.get(f"/canvas/main/{name}")
    assert "Sign in" in first.text
    assert "canvas-view" not in first.text
    assert f'value="/canvas/main/{name}"' in first.text
    wrong = stranger.post("/sign-in", data={"token": "no", "next": f"/canvas/main/{name}"})
    assert f'value="/canvas/main/{name}"' in wrong.text
    answer = stranger.post("/sign-in", data={"token": small_easel.token, "next": f"/canvas/main/{name}"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/canvas/main/{name}")
    assert "data-view" in stranger.get(f"/canvas/main/{name}").text


@pytest.mark.parametrize(
    "elsewhere",
    [
        "//evil.example",
        "https://evil.example",
        "/canvas/../sign-out",
        "/\\evil.example",
        "/canvas/a/b?x",
        '"><script>',
        "/canvas/a/b/c",
    ],
)
def test_a_sign_in_leads_nowhere_else(small_easel: LiveEasel, elsewhere: str) -> None:
    with small_easel.stranger() as http:
        answer = http.post("/sign-in", data={"token": small_easel.token, "next": elsewhere})
        assert answer.headers["location"] == "/"
        assert elsewhere not in http.post("/sign-in", data={"token": "no", "next": elsewhere}).text


@pytest.mark.parametrize(
    "path", ["/canvas/main/there-is-none", "/canvas/other/{name}", "/canvas/main/%3Cb%3E"]
)
def test_a_canvas_that_is_not_there_is_told_in_a_page(small_easel: LiveEasel, path: str) -> None:
    answer = small_easel.get(path.format(name=canvas(small_easel)))
    assert answer.status_code == 404
    assert "There is no canvas" in answer.text
    assert "<b>" not in answer.text


# --- what every answer of a view says ------------------------------------------------------------------------------------

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
    ("gsv_paths.js",               404, "application/json"),
    ("assets/%00",                 400, "application/json"),
]  # fmt: skip


@case("U3")
@rule("RS-58")
@pytest.mark.parametrize("path, status, kind", FILES)
def test_every_answer_of_a_view_has_a_strict_policy_and_its_right_type(
    small_easel: LiveEasel, path: str, status: int, kind: str
) -> None:
    view = view_of(small_easel, canvas(small_easel))
    with small_easel.stranger() as http:
        check_held_in(http.get(view + path), status, kind)
        head = http.head(view + path)
        assert head.status_code == status
        assert policy(head)["default-src"] == "'none'"


def check_held_in(answer: httpx2.Response, status: int, kind: str) -> None:
    assert (answer.status_code, answer.headers.get("content-type")) == (status, kind), answer.text[:300]
    said = policy(answer)
    assert (said["default-src"], said["form-action"], said["base-uri"]) == ("'none'", "'none'", "'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "connection-allowlist" in answer.headers
    assert "set-cookie" not in answer.headers
    is_page = kind.startswith("text/html")
    assert said["sandbox"] == ("allow-scripts allow-forms" if is_page else ""), (
        "opened by itself it has an opaque origin, too"
    )
    assert ("script-src" in said) is is_page


@case("U3")
def test_refusals_of_a_view_that_never_reach_it_are_held_in_too(small_easel: LiveEasel) -> None:
    view = view_of(small_easel, canvas(small_easel))
    with small_easel.stranger() as http:
        check_held_in(http.post(f"{view}assets/index.html"), 405, "application/json")
        check_held_in(http.put(f"{view}assets/index.html", content=b"x"), 405, "application/json")
        check_held_in(http.get("/canvas-view/no-token/assets/index.html"), 404, "application/json")
        check_held_in(http.get("/canvas-view/"), 404, "application/json")
        check_held_in(
            http.get(f"{view}assets/index.html", headers={"host": "evil.example"}), 421, "application/json"
        )
        check_held_in(
            http.get(f"{view}assets/index.html", headers={"origin": "https://evil.example"}),
            403,
            "application/json",
        )
        redirect = http.get(view.rstrip("/"), follow_redirects=False)
        assert redirect.status_code in (307, 404)
        assert policy(redirect)["default-src"] == "'none'"


@case("U3")
def test_an_answer_that_broke_is_held_in_too(small_easel: LiveEasel, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of(small_easel, canvas(small_easel))

    async def break_down(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(type(small_easel.instances[0].services.assets), "read", break_down)
    with small_easel.stranger() as http:
        answer = http.get(f"{view}assets/a.svg")
    check_held_in(answer, 500, "application/json")
    assert "on purpose" not in answer.text


def test_a_page_may_load_from_its_own_view_alone(small_easel: LiveEasel, stranger: httpx2.Client) -> None:
    view = view_of(small_easel, canvas(small_easel))
    answer = stranger.get(f"{view}assets/index.html")
    here = f"{small_easel.base_url}{view}"
    said = policy(answer)
    assert said["script-src"] == f"{here} '{csp_hash('let inline = 1;')}'"
    assert (said["connect-src"], said["font-src"], said["frame-ancestors"]) == (
        here,
        f"{here} data:",
        small_easel.base_url,
    )
    assert (said["frame-src"], said["worker-src"], said["object-src"]) == ("'none'", "'none'", "'none'")
    assert answer.headers["connection-allowlist"] == f'("{here}*")'


@case("R7")
@rule("RS-59")
def test_a_page_reaches_what_its_policy_lists_once_a_person_stands_for_it(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    connect = ["https://api.example.com", "wss://live.example.com:8443"]
    name = canvas(small_easel, spec={"toolPolicy": {"connect": connect}})
    page = f"{view_of(small_easel, name)}assets/index.html"
    said = policy(stranger.get(page))
    assert said["connect-src"].split()[1:] == connect
    assert said["img-src"].split()[1:] == ["data:", "blob:", connect[0]]
    small_easel.sql(f"update canvases set is_accepted = 0 where canvas_id = '{name}'")
    unaccepted = stranger.get(page)
    assert (
        "example.com"
        not in unaccepted.headers["content-security-policy"] + unaccepted.headers["connection-allowlist"]
    )


# --- the SDK ------------------------------------------------------------------------------------------------------------

FRONTS = [
    ("<!doctype html><html>", "<!doctype html>|<html>"),
    (
        "<!DOCTYPE HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'>\n<p>",
        "<!DOCTYPE HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'>|\n<p>",
    ),
    (
        "\ufeff<!-- a > b --> <?xml version='1.0'?>\r\n<!doctype html>x",
        "<!-- a > b --> <?xml version='1.0'?>\n<!doctype html>|x",
    ),
    ("<p>no doctype", "|<p>no doctype"),
    ("", "|"),
    ("<!-- never ends <!doctype html>", "|<!-- never ends <!doctype html>"),
    ("<!doctype html", "|<!doctype html"),
]


@pytest.mark.parametrize("html, expected", FRONTS)
def test_the_sdk_stands_before_everything_but_the_doctype(html: str, expected: str) -> None:
    assert prepare_page(html.encode(), "/gsv.js").html == expected.replace(
        "|", '<script src="/gsv.js" crossorigin></script>'
    )


def test_scripts_that_came_with_the_page_are_known_by_their_hashes() -> None:
    html = (
        "<script>one\r\n&amp;&&</script><SCRIPT type=module>two</SCRIPT ><script type='application/json'>{}</script>"
        "<!-- <script>hidden</script> --><script src=x.js></script><script src='y.js' CrossOrigin>ignored</script><script>never ends"
    )
    made = prepare_page(html.encode(), "/gsv.js")
    assert made.hashes == [csp_hash("one\n&amp;&&"), csp_hash("two")]
    assert "<script crossorigin=anonymous src=x.js>" in made.html
    assert "<script src='y.js' CrossOrigin>" in made.html
    assert len(prepare_page(b"<script>x</script>" * 500, "/gsv.js").hashes) == MAX_INLINE
    assert "<p>wide" in prepare_page("<p>wide".encode("utf-16"), "/gsv.js").html


BOMBS = [
    b"<!-- -->",
    b"<!--",
    b"<script>",
    b"<script ",
    b'<script a="',
    b"<script a",
    b"<?",
    b"<!doctype ",
    b"</script",
    b"<script a=' = b",
    b"\xff\xfe<",
]


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_page_takes_longer_than_its_length(bomb: bytes) -> None:
    def seconds(size: int) -> float:
        began = time.thread_time()
        prepare_page(bomb * (size // len(bomb)), "/gsv.js")
        return time.thread_time() - began

    small = min(seconds(100_000) for _ in range(3))
    assert min(seconds(1_600_000) for _ in range(2)) < 16 * small * 6 + 0.1


@rule("CV-06")
def test_what_is_stored_stays_as_it_came(small_easel: LiveEasel, stranger: httpx2.Client) -> None:
    name = canvas(small_easel)
    assert "gsv.js" in stranger.get(f"{view_of(small_easel, name)}assets/index.html").text
    assert rpc(small_easel, "canvas.asset.get", canvasId=name, path="assets/index.html")["text"] == PAGE


def test_a_canvas_without_a_page_gets_one_in_which_nothing_of_the_spec_is_html(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    spec = {
        "description": "</p><script>alert(1)</script>",
        "state": {"service": "api", "lastRun": None},
        "writable": ["service"],
        "actions": {
            "run.it": {"kind": "tool.call", "tool": "gsv__Echo", "title": "<img src=x>", "saveAs": "lastRun"},
            "refreshLogs": {"kind": "state.patch", "patch": []},
        },
    }
    name = canvas(small_easel, spec=spec, assets={}, title="</title><script>")
    answer = stranger.get(f"{view_of(small_easel, name)}assets/index.html")
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    assert answer.text.count("<title>") == 1
    assert 'data-gsv-action="run.it"' in answer.text
    assert ">Refresh logs</button>" in answer.text
    assert (
        '{"writable": [["service"]], "results": [["lastRun"]], "saves": {"run.it": ["lastRun"]}, "numbers": []}'
        in answer.text
    )


# --- tokens -------------------------------------------------------------------------------------------------------------


@case("U9")
def test_a_view_needs_no_cookie_and_opens_one_canvas_alone(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    one, other = canvas(small_easel), canvas(small_easel, assets={"assets/secret.txt": "s"})
    view = view_of(small_easel, one)
    assert stranger.get(f"{view}assets/index.js").text == "let a = 1;"
    assert stranger.get(f"{view}assets/secret.txt").status_code == 404
    assert stranger.get(f"{view_of(small_easel, other)}assets/secret.txt").text == "s"
    for path in ("/api/runs", f"/canvas/main/{one}", "/api/audit"):
        with_token = stranger.get(path, headers={"authorization": f"Bearer {view.split('/')[2]}"})
        assert with_token.status_code == 401 or "Sign in" in with_token.text


def test_a_token_that_is_forged_changed_or_over_opens_nothing(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    name = canvas(small_easel)
    pages = small_easel.instances[0].services.pages
    began = time.time()
    token, until = pages.new_token(THE_OWNER, name, began)
    assert stranger.get(f"/canvas-view/{token}/assets/index.js").status_code == 200
    ends, user, canvas_id, sign_in, signature = token.split(".")
    assert sign_in == "", "the owner's own token is no row of a table"
    rest = f"{canvas_id}.{sign_in}.{signature}"
    forged = [
        f"{int(ends) + 1}.{user}.{rest}", f"{ends}.{user}.{letters('other')}.{sign_in}.{signature}", f"{ends}.{letters('mallory')}.{rest}",
        f"{ends}.{user}.{canvas_id}.{letters('tok_x')}.{signature}", f"{ends}.{user}.{canvas_id}.{sign_in}.", f"{ends}.{user}.{canvas_id}", token[:-1], token + "A",
        signature, "", ".", "...", "....", "a.b.c.d.e", "%00", quote("ü.ü.ü.ü.ü"), "x" * 5000,
    ]  # fmt: skip
    for one in forged:
        answer = stranger.get(f"/canvas-view/{one}/assets/index.js")
        assert answer.status_code == 404, one
        assert name not in answer.text
    old, _ = pages.new_token(THE_OWNER, name, began - (until - began) - 1)
    assert stranger.get(f"/canvas-view/{old}/assets/index.js").status_code == 404
    elsewhere, _ = pages.new_token(Principal(UserId("mallory"), "mallory"), name, time.time())
    assert stranger.get(f"/canvas-view/{elsewhere}/assets/index.js").status_code == 404, (
        "another user's canvas of this name"
    )


@case("O9")
def test_a_view_ends_with_the_token_that_it_was_opened_under(easel: LiveEasel) -> None:
    name = canvas(easel)
    instance = easel.instances[0]
    tokens = Tokens(instance.opened.tokens, instance.services.audit)
    made, secret = easel.do(tokens.create("owner", "user"))
    with easel.stranger() as http:
        shell = http.get(f"/canvas/main/{name}", headers={"authorization": f"Bearer {secret}"})
        view = re.search(r'data-view="([^"]+)"', shell.text)
        assert view
        assert http.get(f"{view[1]}assets/index.js").status_code == 200
        easel.do(tokens.revoke(made.token_id))
        assert http.get(f"{view[1]}assets/index.js").status_code == 404


def letters(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def test_another_instance_knows_the_token_and_another_owner_s_token_ends_it(
    two_edges: LiveEasel, tmp_path: Path
) -> None:
    name = canvas(two_edges)
    view = view_of(two_edges, name)
    with two_edges.stranger() as http:
        assert http.get(f"{two_edges.instances[1].base_url}{view}assets/index.js").text == "let a = 1;"
    with LiveEasel(tmp_path, with_worker=False) as other:
        rpc(other, "canvas.create", canvasId=name, assets=ASSETS)
        assert other.get(f"{view}assets/index.js").status_code == 404


def test_no_token_is_in_a_log_or_a_record(
    small_easel: LiveEasel, stranger: httpx2.Client, logged: list[dict[str, Any]]
) -> None:
    view = view_of(small_easel, canvas(small_easel))
    path, token = f"assets/{new_session()}.js", view.split("/")[2]
    stranger.get(f"{view}assets/index.html")
    assert stranger.get(f"{view}{path}", headers={"origin": "https://evil.example"}).status_code == 403
    for name in ("assets/index.html", path):  # its line is written after its answer
        wait_for_sync(
            lambda name=name: f"/canvas-view/…/{name}" in str(logged), within=20, what=f"{name} is logged"
        )
    assert token not in str(logged)
    wait_for_sync(lambda: path in refusals(small_easel), within=20, what="the refusal is on record")
    assert token not in refusals(small_easel)


def refusals(easel: LiveEasel) -> str:
    """What is on record of them, which is soon and not at once."""
    return easel.get("/api/audit?action=guardrail.refused&limit=200").text


@case("U4")
@rule("CV-47")
def test_no_path_leaves_the_assets_of_its_view(small_easel: LiveEasel) -> None:
    one, other = (
        canvas(small_easel),
        canvas(small_easel, assets={"assets/secret.txt": "the secret of another canvas"}),
    )
    view = view_of(small_easel, one)
    ups = ["../", "..%2f", "%2e%2e/", "%2e%2e%2f", "%252e%252e%252f", "..%5c", "%5c..%5c", "..\\", "....//", ".%2e/", "%u002e%u002e/", "%c0%ae%c0%ae/", "‥/", "．．/", "..;/", "..%00/",
           "%2e%2e%5c", "..%252f", "..%c0%af", "..%e2%88%95", "..%ef%bc%8f", "/../", "//../", "./../", "%2f..%2f"]  # fmt: skip
    ends = [
        f"{other}/assets/secret.txt",
        f"canvases/{other}/assets/secret.txt",
        "secret.txt",
        "etc/passwd",
        "easel.db",
        "owner-token",
    ]
    tried = 0
    host, port = small_easel.address
    with contextlib.closing(
        http.client.HTTPConnection(host, port, timeout=30)
    ) as plain:  # a client that tidies nothing up
        for up in ups:
            for end in ends:
                for start in ("assets/", "", "assets/more/"):
                    path = quote(f"{view}{start}{up * 3}{end}", safe="/%\\;")
                    plain.request("GET", path)
                    answer = plain.getresponse()
                    said = answer.read()
                    assert answer.status in (400, 404), path
                    assert b"secret of another" not in said
                    assert b"root:" not in said
                    tried += 1
    assert tried >= 300


# --- who may ask ----------------------------------------------------------------------------------------------------------


@case("U9")
@rule("CV-05")
def test_the_api_refuses_whatever_comes_from_a_canvas_s_origin(
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
    wait_for_sync(lambda: "another site" in refusals(small_easel), within=20, what="it is on record")


def test_a_page_in_its_opaque_origin_may_fetch_its_own_files(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    view = view_of(small_easel, canvas(small_easel))
    answer = stranger.get(
        f"{view}assets/a.json",
        headers={"origin": "null", "sec-fetch-site": "cross-site", "sec-fetch-dest": "empty"},
    )
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "null")
    assert "access-control-allow-credentials" not in answer.headers
    assert "access-control-allow-origin" not in stranger.get(f"{view}assets/a.json").headers


@pytest.mark.parametrize(
    "dest", ["script", "style", "serviceworker", "worker", "sharedworker", "empty", "object", "embed"]
)
def test_our_own_pages_take_no_script_from_a_canvas(
    small_easel: LiveEasel, stranger: httpx2.Client, dest: str
) -> None:
    view = view_of(small_easel, canvas(small_easel))
    asked = {"sec-fetch-site": "same-origin", "sec-fetch-dest": dest}
    assert stranger.get(f"{view}assets/index.js", headers=asked).status_code == 403
    assert (
        stranger.get(f"{view}assets/index.html", headers={**asked, "sec-fetch-dest": "iframe"}).status_code
        == 200
    )


def test_assets_can_have_a_host_name_of_their_own(tmp_path: Path) -> None:
    port = free_port()
    public, assets = f"http://easel.localhost:{port}", f"http://assets.localhost:{port}"
    with LiveEasel(
        tmp_path, with_worker=False, settings={"public_url": public, "assets_url": assets}
    ) as easel:
        name = canvas(easel)
        shell = easel.get(f"/canvas/main/{name}")
        view = re.search(r'data-view="([^"]+)"', shell.text)
        assert view
        assert view[1].startswith(f"{assets}/canvas-view/")
        assert policy(shell)["frame-src"] == view[1]
        path, there = view[1].removeprefix(assets), {"host": assets.removeprefix("http://")}
        page = easel.get(f"{path}assets/index.html", headers=there)
        assert page.status_code == 200
        assert (policy(page)["frame-ancestors"], policy(page)["connect-src"]) == (public, view[1])
        assert easel.get(f"{path}assets/index.html").status_code == 404, "only there"
        for elsewhere in ("/", "/api/runs", f"/canvas/main/{name}", "/ui/easel.css", "/healthz"):
            assert easel.get(elsewhere, headers=there).status_code == 404, "and nothing else is there"
