"""Sign-in by token, by cookie and by the printed link; without one every route but the open ones refuses."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from easel.assembly.storage import derive_key
from tests.edges.http.live import LiveEasel, cookie_name, script
from tests.requirements import case

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2


@pytest.fixture
def stranger(small_easel: LiveEasel) -> Iterator[httpx2.Client]:
    with small_easel.stranger() as client:
        yield client


@pytest.fixture(scope="module")
def run_id(small_easel: LiveEasel) -> str:
    return small_easel.finish(script({"say": "private text"}))


# --- access -------------------------------------------------------------------------------------------------


@case("O7")
def test_request_without_a_token_is_refused(stranger: httpx2.Client, run_id: str) -> None:
    answer = stranger.get(f"/api/runs/{run_id}/events")
    assert (answer.status_code, answer.json()["error"]["name"]) == (401, "NOT_SIGNED_IN")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "private text" not in answer.text


def wrong_credentials(easel: LiveEasel | None = None) -> dict[str, dict[str, str]]:
    """Return headers that must be refused, without an Easel only their names."""
    token, valid = ("", "a=b.c") if easel is None else (easel.token, easel.new_cookie())
    name, _, value = valid.partition("=")
    sign_in_id = value.partition(".")[0]
    unsigned = hmac.new(b"", sign_in_id.encode(), hashlib.sha256).hexdigest()
    another = hmac.new(derive_key("x" * 43, token, "cookie"), sign_in_id.encode(), hashlib.sha256).hexdigest()
    return {
        "a wrong token": {"Authorization": "Bearer wrong"},
        "an empty token": {"Authorization": "Bearer"},
        "no scheme": {"Authorization": token},
        "the wrong scheme": {"Authorization": f"Basic {token}"},
        "a longer token": {"Authorization": f"Bearer {token}x"},
        "a shorter token": {"Authorization": f"Bearer {token[:-1]}"},
        "two tokens": {"Authorization": f"Bearer {token} {token}"},
        "the token as a cookie": {"Cookie": f"{name}={token}"},
        "an empty cookie": {"Cookie": f"{name}="},
        "a cookie without a signature": {"Cookie": f"{name}={sign_in_id}"},
        "a cookie with an empty signature": {"Cookie": f"{name}={sign_in_id}."},
        "a forged cookie": {"Cookie": f"{name}={sign_in_id}.{'0' * 64}"},
        "a cookie signed with an empty key": {"Cookie": f"{name}={sign_in_id}.{unsigned}"},
        "a cookie of another server": {"Cookie": f"{name}={sign_in_id}.{another}"},
        "a cookie of letters": {"Cookie": f"{name}=never.never"},
        "a long cookie": {"Cookie": f"{name}={'9' * 6000}.x"},
        "a wrong token with a valid cookie": {"Authorization": "Bearer wrong", "Cookie": valid},
    }


@pytest.mark.parametrize("name", [*wrong_credentials()])
def test_wrong_credential_is_refused(
    small_easel: LiveEasel, stranger: httpx2.Client, run_id: str, name: str
) -> None:
    headers = wrong_credentials(small_easel)[name]
    for path in (
        "/api/runs",
        f"/api/runs/{run_id}",
        f"/api/runs/{run_id}/events",
        "/metrics",
        "/openapi.json",
    ):
        assert stranger.get(path, headers=headers).status_code == 401
    home = stranger.get("/", headers=headers)
    assert "Sign in" in home.text
    assert "Start a run" not in home.text


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_scheme_of_a_token_is_case_insensitive(
    small_easel: LiveEasel, stranger: httpx2.Client, scheme: str
) -> None:
    headers = {"Authorization": f"{scheme} {small_easel.token}"}
    assert stranger.get("/api/runs", headers=headers).status_code == 200


def test_token_in_the_query_is_accepted_by_the_start_page_only(
    small_easel: LiveEasel, stranger: httpx2.Client, run_id: str
) -> None:
    for path in ("/api/runs", f"/api/runs/{run_id}/events", "/metrics", "/openapi.json"):
        assert stranger.get(path, params={"token": small_easel.token}).status_code == 401


# --- link and form ------------------------------------------------------------------------------------------


def test_printed_link_sets_a_cookie_and_redirects_without_the_token(
    small_easel: LiveEasel, stranger: httpx2.Client, run_id: str
) -> None:
    answer = stranger.get("/", params={"token": small_easel.token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert answer.headers["cache-control"] == "no-store"
    cookie = answer.headers["set-cookie"]
    assert small_easel.token not in cookie
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=lax", "path=/"} <= attributes
    assert not any(part.startswith("domain") for part in attributes)
    assert "Start a run" in stranger.get("/").text
    assert stranger.get(f"/api/runs/{run_id}").status_code == 200
    assert "private text" in stranger.get(f"/api/runs/{run_id}/events").text


def test_wrong_link_shows_the_form_and_sets_no_cookie(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    for token in ("", "guessed", small_easel.token + "x", "\x00", "\u00fc", "x" * 5000):
        answer = stranger.get("/", params={"token": token})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert "This token is not valid" in answer.text
        assert token == "" or token not in answer.text


def test_form_accepts_the_token_with_surrounding_space(
    small_easel: LiveEasel, stranger: httpx2.Client
) -> None:
    page = stranger.get("/")
    assert (page.status_code, page.headers["cache-control"]) == (200, "no-store")
    assert "Sign in" in page.text
    answer = stranger.post("/sign-in", data={"token": f"  {small_easel.token}\n"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "Start a run" in stranger.get("/").text


@pytest.mark.parametrize(
    "body", [b"", b"token=", b"token=wrong", b"token=%ff%00", b"other=1", b"\xff\xfe", b"token=a&token=b"]
)
def test_wrong_form_is_shown_again_with_a_message(stranger: httpx2.Client, body: bytes) -> None:
    answer = stranger.post("/sign-in", content=body)
    assert answer.status_code == 401
    assert "This token is not valid" in answer.text
    assert "set-cookie" not in answer.headers


def test_oversized_form_is_refused(stranger: httpx2.Client) -> None:
    answer = stranger.post("/sign-in", content=b"token=" + b"x" * 10_000)
    assert (answer.status_code, answer.json()["error"]["name"]) == (413, "TOO_LARGE")


def test_sign_out_deletes_the_cookie(small_easel: LiveEasel, stranger: httpx2.Client) -> None:
    stranger.get("/", params={"token": small_easel.token})
    answer = stranger.post("/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "Sign in" in stranger.get("/").text
    assert stranger.get("/api/runs").status_code == 401


@pytest.mark.parametrize(
    "public_url, name",
    [
        ("https://easel.example.org", "__Host-easel-443"),
        ("https://easel.example.org:8443", "__Host-easel-8443"),
    ],
)
def test_cookie_is_secure_and_bound_to_its_host_behind_https(
    tmp_path_factory: pytest.TempPathFactory, public_url: str, name: str
) -> None:
    folder = tmp_path_factory.mktemp("easel")
    with LiveEasel(folder, settings={"public_url": public_url}) as easel, easel.stranger() as client:
        signed_in = client.get("/", params={"token": easel.token}).headers["set-cookie"]
        client.headers["cookie"] = signed_in.partition(";")[0]
        assert client.get("/api/runs").status_code == 200
        signed_out = client.post("/sign-out", headers={"origin": public_url}).headers["set-cookie"]
        assert client.get("/api/runs").status_code == 401
    for cookie in (signed_in, signed_out):
        attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert cookie.startswith(f"{name}=")
        assert {"secure", "path=/", "httponly", "samesite=lax"} <= attributes
        assert not any(part.startswith("domain") for part in attributes)


def test_two_servers_on_one_host_have_cookies_of_their_own(
    tmp_path_factory: pytest.TempPathFactory, small_easel: LiveEasel
) -> None:
    """A browser sends the cookies of a host to all its ports; an old cookie without a port is ignored."""
    with LiveEasel(tmp_path_factory.mktemp("second")) as second, second.stranger() as browser:
        jar: dict[str, str] = {"easel": f"sign_{0:026}.00"}
        for easel in (small_easel, second):
            browser.headers["cookie"] = "; ".join(f"{name}={value}" for name, value in jar.items())
            answer = browser.get(f"{easel.base_url}/", params={"token": easel.token})
            assert answer.status_code == 303
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            assert name == cookie_name(easel.base_url)
            jar[name] = value
        browser.cookies.clear()
        browser.headers["cookie"] = "; ".join(f"{name}={value}" for name, value in jar.items())
        for easel in (small_easel, second):
            assert browser.get(f"{easel.base_url}/api/runs").status_code == 200


# --- slowing down -------------------------------------------------------------------------------------------


def test_wrong_tokens_slow_down_every_way_to_sign_in(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("easel")
    with (
        LiveEasel(folder, settings={"sign_in_failures": 3}, token="short-token-17chr") as easel,
        easel.stranger() as client,
    ):
        cookie = easel.new_cookie().partition("=")[2]
        statuses = [
            client.get("/", params={"token": "wrong"}).status_code,
            client.post("/sign-in", data={"token": "wrong"}).status_code,
            client.get("/api/runs", headers={"Authorization": "Bearer wrong"}).status_code,
        ]
        assert statuses == [401, 401, 401]
        refused = [
            client.get("/", params={"token": "wrong"}),
            client.post("/sign-in", data={"token": easel.token}),
            client.get("/api/runs", headers={"Authorization": f"Bearer {easel.token}"}),
        ]
        for answer in refused:
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert "set-cookie" not in answer.headers
        assert "try again in" in refused[1].text
        assert refused[2].json()["error"]["name"] == "TOO_MANY_FAILURES"
        headers = {"Cookie": f"{cookie_name(easel.base_url)}={cookie}"}
        assert client.get("/api/runs", headers=headers).status_code == 200, "who is signed in stays so"


def test_token_with_special_characters_works_in_link_and_form(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    token = "a+b&c=d#e%f/g?h i"
    with LiveEasel(tmp_path_factory.mktemp("easel"), token=token) as easel, easel.stranger() as client:
        assert client.get(f"/?token={quote(token, safe='')}").status_code == 303
        assert client.post("/sign-in", data={"token": token}).status_code == 303
        assert easel.get("/api/tools").status_code == 200


# --- ops ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_open_and_shows_nothing_else(stranger: httpx2.Client, path: str) -> None:
    answer = stranger.get(path)
    assert (answer.status_code, answer.text) == (200, "ok\n")
    assert "server" not in answer.headers


def test_metrics_are_shown_to_the_owner_without_ids_and_secrets(small_easel: LiveEasel, run_id: str) -> None:
    text = small_easel.get("/metrics").text
    for name in (
        "queue_depth",
        "claim_seconds",
        "append_seconds",
        "subscribers",
        "takeovers",
        "http_requests",
    ):
        assert f"easel_{name}" in text
    assert run_id not in text
    assert small_easel.token not in text


def test_metrics_are_open_only_by_setting(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        LiveEasel(tmp_path_factory.mktemp("easel"), settings={"open_metrics": True}) as easel,
        easel.stranger() as client,
    ):
        assert "easel_queue_depth" in client.get("/metrics").text
        assert client.get("/api/runs").status_code == 401
