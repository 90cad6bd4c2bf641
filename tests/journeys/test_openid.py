"""Sign-in at npm's oidc-provider, on two APIs behind one address."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import asyncpg
import httpx2
import pytest

from easel.edges.http.calls import SessionCookie
from tests.journeys.test_oauth import start_api, with_query
from tests.requirements import case, rule
from tests.support.oidc import CLIENT_SECRET, NO_TLS, OidcProvider, approve
from tests.support.postgres import create_database, drop_database
from tests.support.processes import Launcher, free_port
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.oidc
SECONDS = 60.0
CANVAS = "/canvas/main/board?account=devs"
PEOPLE = {
    "alice": {
        "email": "Ada@example.com",
        "email_verified": True,
        "preferred_username": "Ada L.",
        "name": "Ada Lovelace",
        "groups": ["devs:member", "unknown:admin"],
    },
    "mallory": {"email": "ada@example.com", "email_verified": False},
    "stranger": {"email": "x@elsewhere.example", "email_verified": True},
    "grace": {"email": "grace@elsewhere.example", "email_verified": True, "name": "Grace Hopper"},
}


@dataclass
class Stage:
    launcher: Launcher
    url: str
    provider: OidcProvider

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Yield a browser without a sign-in; each request may reach another API."""
        async with httpx2.AsyncClient(
            base_url=self.url,
            timeout=SECONDS,
            limits=httpx2.Limits(max_keepalive_connections=0),
            trust_env=False,
            verify=NO_TLS,
        ) as browser:
            yield browser

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[httpx2.AsyncClient]:
        async with self.browser() as client:
            client.headers["authorization"] = f"Bearer {self.launcher.token}"
            yield client

    async def sql(self, statement: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.launcher.database_url)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="module")
def stage(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    database_url = create_database(postgres)
    with Proxy("", 0) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        after = {"post_logout_redirect_uris": [f"{url}/"]}
        with OidcProvider([f"{url}/sign-in/openid/callback"], people=PEOPLE, client=after) as provider:
            settings = {
                "PUBLIC_URL": url,
                **provider.sign_in_settings(ALLOWED="@example.com", TEAMS_CLAIM="groups"),
            }
            with Launcher(tmp_path_factory.mktemp("openid"), database_url, settings) as launcher:
                proxy.targets = [("127.0.0.1", free_port()) for _ in range(2)]
                launcher.ready(*[start_api(launcher, port) for _, port in proxy.targets])
                yield Stage(launcher, url, provider)
    drop_database(postgres, database_url.rpartition("/")[2])


async def begin(browser: httpx2.AsyncClient, target: str = "/") -> str:
    """Return the address at the provider to which the browser is sent."""
    answer = await browser.get("/sign-in/openid", params={"next": target})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def sign_in(browser: httpx2.AsyncClient, person: str = "", target: str = "/") -> httpx2.Response:
    return await browser.get(await approve(await begin(browser, target), as_person=person))


async def me(browser: httpx2.AsyncClient) -> dict[str, object]:
    return (await browser.get("/api/me")).json()


def check_refused(answer: httpx2.Response, words: str, status: int) -> None:
    """Check that the answer is a page that says what to do, with nothing secret in it."""
    assert answer.status_code == status, answer.text
    assert "Not signed in" in answer.text
    assert words in unescape(answer.text)
    query = parse_qs(answer.url.query.decode())
    for secret in (*query.get("code", []), *query.get("state", []), CLIENT_SECRET):
        assert secret not in answer.text


@rule("RS-76")
@case("O8")
async def test_person_signs_in_comes_back_and_signs_out_everywhere(stage: Stage) -> None:
    async with stage.owner() as owner:
        assert (await owner.post("/api/teams", json={"name": "devs", "admin": "owner"})).status_code == 201
    async with stage.browser() as browser:
        page = (await browser.get(CANVAS)).text
        button = re.search(r'<p ><a class="button" href="([^"]*)">', page)
        assert button is not None, "the page of a signed-out person has the button"
        start = await browser.get(unescape(button[1]))
        answer = await browser.get(await approve(start.headers["location"], as_person="alice"))
        assert (answer.status_code, answer.headers["location"]) == (303, CANVAS)
        assert await me(browser) == {
            "kind": "person",
            "name": "ada-l",
            "operator": False,
            "account": "ada-l",
            "role": "admin",
            "accounts": [
                {"account": "ada-l", "kind": "person", "role": "admin"},
                {"account": "devs", "kind": "team", "role": "member"},
            ],
        }

        stage.provider.rotate_keys()
        stage.provider.change_person("alice", **{**PEOPLE["alice"], "groups": ["devs:viewer"]})
        assert (await sign_in(browser, "alice")).status_code == 303, "signed by a key that is new"
        assert "'role': 'viewer'" in str((await me(browser))["accounts"])
        stage.provider.change_person("alice", **{**PEOPLE["alice"], "groups": []})
        assert (await sign_in(browser, "alice")).status_code == 303
        assert len(await stage.sql("select 1 from team_members where user_id = 'ada-l'")) == 0

        answer = await browser.post("/sign-out")
        [url] = {unescape(found) for found in re.findall(r"url=([^\"]*)", answer.text)}
        assert url.startswith(
            f"{stage.provider.issuer}/session/end?client_id=easel&post_logout_redirect_uri="
        )
        async with httpx2.AsyncClient(timeout=SECONDS, verify=NO_TLS) as at_provider:
            assert (await at_provider.get(url)).status_code == 200
        assert (await browser.get("/api/me")).status_code == 401
    records = await stage.sql("select record from audit where record like '%sign_in.succeeded%'")
    assert all(stage.provider.issuer in row["record"] and "openid" in row["record"] for row in records)


@rule("RS-76")
async def test_only_a_verified_allowed_address_makes_a_person(stage: Stage) -> None:
    async with stage.browser() as browser:
        assert (await sign_in(browser, "alice")).status_code == 303
    count = len(await stage.sql("select 1 from people"))
    for person in ("mallory", "stranger", "nobody"):
        async with stage.browser() as browser:
            status, words = (400, "refused it") if person == "nobody" else (403, "have no account here yet")
            check_refused(await sign_in(browser, person), words, status)
            assert (await browser.get("/api/me")).status_code == 401
    assert len(await stage.sql("select 1 from people")) == count


@rule("RX-40", "RX-44")
@case("O2")
async def test_callback_works_once_and_in_its_own_browser_only(stage: Stage) -> None:
    async with stage.browser() as browser, stage.browser() as other:
        callback = await approve(await begin(browser), as_person="alice")
        check_refused(await other.get(callback), "another browser", 400)
        await begin(other)  # has a cookie of its own now
        check_refused(await other.get(callback), "another browser", 400)
        assert (await browser.get(callback)).status_code == 303
        check_refused(await browser.get(callback), "used already", 400)
        mixed = with_query(await approve(await begin(browser)), iss="https://evil.example")
        check_refused(await browser.get(mixed), "does not come from", 400)
        without = await approve(await begin(browser))
        check_refused(await browser.get(without.split("&iss=")[0]), "does not come from", 400)
        expired = await approve(await begin(browser))
        await stage.sql("update oauth_state set expires_at = now() - interval '1 second'")
        check_refused(await browser.get(expired), "older than 10 minutes", 400)


@rule("RS-76")
async def test_invitation_connects_an_identity_and_a_disabled_person_stays_out(stage: Stage) -> None:
    async with stage.owner() as owner, stage.browser() as browser:
        added = (await owner.post("/api/people", json={"name": "grace"})).json()
        link = urlsplit(added["invitation_url"])
        assert "Sign in with 127.0.0.1 instead" in (await browser.get(f"{link.path}?{link.query}")).text
        form = {"name": "grace", "token": link.fragment}
        wrong = await browser.post("/invitation/openid", data={**form, "name": "owner"})
        check_refused(wrong, "not valid", 403)
        answer = await browser.post("/invitation/openid", data=form)
        [url] = {unescape(found) for found in re.findall(r"url=([^\"]*)", answer.text)}
        assert (await browser.get(await approve(url, as_person="grace"))).status_code == 303
        assert (await me(browser))["account"] == "grace"
        async with stage.browser() as second:
            assert (await sign_in(second, "grace")).status_code == 303
        assert (await owner.patch("/api/people/grace", json={"disabled": True})).status_code == 200
        check_refused(await sign_in(browser, "grace"), "disabled or deleted", 403)
        assert (await owner.delete("/api/people/grace")).status_code == 204
        check_refused(await sign_in(browser, "grace"), "disabled or deleted", 403)


@case("O2")
async def test_cookie_of_the_browser_is_its_own_and_protected(stage: Stage) -> None:
    async with stage.browser() as browser:
        answer = await browser.get("/sign-in/openid")
    cookie = answer.headers["set-cookie"]
    assert re.fullmatch(r"easel-\d+-openid=[\w-]{43}; HttpOnly; Max-Age=600; Path=/; SameSite=lax", cookie), (
        cookie
    )
    secure = SessionCookie.of("https://easel.example", "").of_flow(600)
    assert (secure.name, secure.is_secure) == ("__Host-easel-443-openid", True)


async def test_nothing_secret_is_stored(stage: Stage) -> None:
    async with stage.browser() as browser:
        callback = await approve(await begin(browser), as_person="alice")
        cookie = next(value for name, value in browser.cookies.items() if name.endswith("-openid"))
        [state] = parse_qs(urlsplit(callback).query)["state"]
        [row] = [row for row in await stage.sql("select * from oauth_state") if row["state"] == state]
        assert cookie not in str(dict(row))
        assert (await browser.get(callback)).status_code == 303
    query = parse_qs(urlsplit(callback).query)
    records = str(await stage.sql("select record from audit"))
    logs = "".join(path.read_text() for path in stage.launcher.folder.rglob("*.log"))
    for secret in (query["code"][0], query["state"][0], cookie, row["nonce"], CLIENT_SECRET):
        assert secret not in records
        assert secret not in logs
