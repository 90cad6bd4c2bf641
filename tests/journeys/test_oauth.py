"""Providers are connected through two APIs behind a proxy, and used by two workers, on Postgres."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import asyncpg
import httpx2
import psutil
import pytest

from tests.journeys.client import TERMINAL, Client, spread
from tests.journeys.conftest import CLAIM_SECONDS
from tests.requirements import case, rule
from tests.support.curl import parse_curl
from tests.support.oidc import CLIENT_SECRET, NO_TLS, OidcProvider, approve
from tests.support.postgres import create_database, drop_database
from tests.support.processes import EASEL, ROOT, EaselProcess, Launcher, free_port
from tests.support.proxy import Proxy
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.oidc
FLOWS, BROWSERS = 200, 10
CALLBACKS = 50  # of one flow
WAITING = 50  # for a token
SECONDS = 60.0
KEY = "a secret key of this test alone, of 32 characters"


class ModelServer(ThreadingHTTPServer):
    """A server of models that takes any token, and remembers those that it was sent."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self) -> None:
        self.tokens: list[str] = []
        super().__init__(("127.0.0.1", 0), _ModelHandler)

    @classmethod
    def start(cls) -> ModelServer:
        server = cls()
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _ModelHandler(BaseHTTPRequestHandler):
    server: ModelServer  # type: ignore[assignment]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.tokens.append(self.headers["authorization"].removeprefix("Bearer "))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for delta, reason in (({"role": "assistant", "content": "ok"}, None), ({}, "stop")):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            chunk = {
                "id": "c",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [choice],
            }
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


@dataclass
class Stage:
    """Two APIs behind one address, two workers, two providers and a server of models."""

    launcher: Launcher
    url: str  # the public address
    apis: list[EaselProcess]
    workers: list[EaselProcess]
    provider: OidcProvider
    other: OidcProvider
    models: ModelServer

    def browser(self) -> httpx2.AsyncClient:
        """Return a browser without a sign-in; each of its requests has a connection of its own."""
        return httpx2.AsyncClient(
            base_url=self.url,
            timeout=SECONDS,
            limits=httpx2.Limits(max_keepalive_connections=0),
            trust_env=False,
            verify=NO_TLS,
        )

    @asynccontextmanager
    async def signed_in(self) -> AsyncIterator[httpx2.AsyncClient]:
        async with self.browser() as browser:
            answer = await browser.get("/", params={"token": self.launcher.token})
            assert answer.status_code == 303
            yield browser

    async def sql(self, statement: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.launcher.database_url)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()


def start_api(launcher: Launcher, port: int) -> EaselProcess:
    api = launcher.start("api", (*EASEL, "api", "--port", str(port)), {})
    api.base_url = f"http://127.0.0.1:{port}"  # it prints the public one
    return api


@pytest.fixture(scope="module")
def stage(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    database_url = create_database(postgres)
    models = ModelServer.start()
    with Proxy("", 0) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        with (
            OidcProvider([f"{url}/api/oauth/test/callback"]) as provider,
            OidcProvider([f"{url}/api/oauth/other/callback"]) as other,
        ):
            settings = {
                "CLAIM_SECONDS": str(CLAIM_SECONDS),
                "PUBLIC_URL": url,
                "SECRET_KEY": KEY,
                "PROVIDER": "openai-chat",
                "MODEL": "m",
                "BASE_URL": models.base_url,
                **provider.easel_settings("test"),
                **other.easel_settings("other"),
                "OAUTH_TEST_BASE_URL": models.base_url,
            }
            with Launcher(tmp_path_factory.mktemp("oauth"), database_url, settings) as launcher:
                proxy.targets = [("127.0.0.1", free_port()) for _ in range(2)]
                apis = [start_api(launcher, port) for _, port in proxy.targets]
                workers = [launcher.worker(), launcher.worker()]
                launcher.ready(*apis)
                yield Stage(launcher, url, apis, workers, provider, other, models)
    models.stop()
    drop_database(postgres, database_url.rpartition("/")[2])


@pytest.fixture
async def browser(stage: Stage) -> AsyncIterator[httpx2.AsyncClient]:
    async with stage.signed_in() as browser:
        yield browser


async def start(browser: httpx2.AsyncClient, provider: str = "test") -> str:
    answer = await browser.post(f"/api/oauth/{provider}/start")
    assert answer.status_code == 200, answer.text
    return answer.json()["authorize_url"]


async def connect(browser: httpx2.AsyncClient, provider: str = "test") -> httpx2.Response:
    return await browser.get(await approve(await start(browser, provider)))


def with_query(address: str, **changes: str) -> str:
    parts = urlsplit(address)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | changes
    return parts._replace(query=urlencode(query)).geturl()


def check_refused(answer: httpx2.Response, *words: str, status: int = 400) -> None:
    """Check that the answer is a page that says what is wrong, with nothing secret in it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert "Not connected" in answer.text
    for word in words:
        assert word in answer.text
    query = parse_qs(answer.url.query.decode())
    for secret in (*query.get("code", []), *query.get("state", []), CLIENT_SECRET):
        assert secret not in answer.text


@rule("RX-21", "RX-39", "RX-40")
async def test_all_flows_succeed_whichever_instance_they_reach(stage: Stage) -> None:
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(stage.signed_in()) for _ in range(BROWSERS)]
        answers = await spread(
            [lambda browser=browsers[n % BROWSERS]: connect(browser) for n in range(FLOWS)], at_once=FLOWS
        )
        providers = (await browsers[0].get("/api/oauth")).json()["providers"]
    assert Counter(answer.status_code for answer in answers) == {200: FLOWS}
    assert all("test is connected" in answer.text for answer in answers)
    assert await stage.sql("select 1 from oauth_state") == []
    connected = {each["provider"]: each["connection"] for each in providers}
    assert connected["other"] is None
    assert connected["test"]["connected_by"] == "owner"


@rule("RX-44")
@case("O1")
async def test_one_of_many_callbacks_at_once_succeeds(stage: Stage, browser: httpx2.AsyncClient) -> None:
    callback = await approve(await start(browser))
    answers = await spread([lambda: browser.get(callback)] * CALLBACKS, at_once=CALLBACKS)
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: CALLBACKS - 1}
    check_refused(await browser.get(callback), "used already")


@case("O2")
async def test_callback_in_another_browser_is_refused_and_harmless(
    stage: Stage, browser: httpx2.AsyncClient
) -> None:
    callback = await approve(await start(browser))
    async with stage.browser() as nobody, stage.signed_in() as another:
        check_refused(await nobody.get(callback), "Sign in", status=401)
        check_refused(await another.get(callback), "another browser")
    assert (await browser.get(callback)).status_code == 200


@case("O3")
async def test_code_of_another_flow_and_wrong_verifier_are_refused(
    stage: Stage, browser: httpx2.AsyncClient
) -> None:
    first, second = [await approve(await start(browser)) for _ in range(2)]
    mixed = with_query(first, code=parse_qs(urlsplit(second).query)["code"][0])
    check_refused(await browser.get(mixed), "invalid_grant")
    third = await approve(await start(browser))
    await stage.sql(f"update oauth_state set code_verifier = '{'w' * 64}'")
    check_refused(await browser.get(third), "invalid_grant")
    assert "code_challenge_method=S256" in await start(browser)


@case("O4")
async def test_callback_at_another_address_is_refused(stage: Stage, browser: httpx2.AsyncClient) -> None:
    for changed in ("/api/oauth/other/callback", "/auth/callback"):
        callback = await approve(await start(browser))
        answer = await browser.get(callback.replace("/api/oauth/test/callback", changed))
        check_refused(answer, f"must call back {stage.url}/api/oauth/test/callback")
    for path in ("/api/oauth/test/callback/", "/api/oauth/TEST/callback", "/api/oauth/test/callback?x=@evil"):
        address = with_query(await start(browser), redirect_uri=stage.url + path)
        async with httpx2.AsyncClient(timeout=SECONDS, verify=NO_TLS) as at_provider:
            assert (await at_provider.get(address)).status_code == 400, "the provider compares exactly"


@rule("RX-39")
@case("O5")
async def test_expired_mixed_up_and_denied_flows_are_refused(
    stage: Stage, browser: httpx2.AsyncClient
) -> None:
    callback = await approve(await start(browser))
    check_refused(await browser.get(with_query(callback, iss=stage.other.issuer)), "does not come from test")
    of_other = parse_qs(urlsplit(await approve(await start(browser, "other"))).query)
    mixed = with_query(await approve(await start(browser)), code=of_other["code"][0], iss=of_other["iss"][0])
    check_refused(await browser.get(mixed), "does not come from test")
    expired = await approve(await start(browser))
    await stage.sql("update oauth_state set expires_at = now() - interval '1 second'")
    check_refused(await browser.get(expired), "older than 10 minutes")
    denied = await approve(await start(browser), as_person="nobody")
    check_refused(await browser.get(denied), "access was not granted")
    assert await stage.sql("select 1 from oauth_state where expires_at < now()") == [], "swept by a start"


@rule("RX-40")
async def test_removed_connection_is_gone_on_every_instance(
    stage: Stage, browser: httpx2.AsyncClient
) -> None:
    assert (await connect(browser, "other")).status_code == 200
    assert (await browser.delete("/api/oauth/other")).status_code == 204
    assert (await browser.delete("/api/oauth/other")).status_code == 404
    listed = [(await browser.get("/api/oauth")).json()["providers"] for _ in range(2)]
    assert [each[0]["connection"] for each in listed] == [None, None]


# -- refresh -------------------------------------------------------------------------------------------------


async def expire_token(stage: Stage) -> None:
    await stage.sql("update auth set expires_at = now() - interval '1 second'")


@rule("RX-41")
@case("O6")
async def test_expired_token_is_refreshed_once_for_all(stage: Stage, browser: httpx2.AsyncClient) -> None:
    await connect(browser)
    async with Client(*stage.apis) as client:
        assert (await client.post("/api/settings/check")).json()["ok"]
        [*_, old_token] = stage.models.tokens
        await expire_token(stage)
        before = stage.provider.counts
        stage.models.tokens.clear()
        asks = [lambda n=n: client.post("/api/settings/check", at=n % 2) for n in range(WAITING)]
        answers = [answer.json() for answer in await spread(asks, at_once=WAITING)]
    assert [answer for answer in answers if not answer["ok"]] == []
    after = stage.provider.counts
    assert (after.requests - before.requests, after.refresh - before.refresh) == (1, 1)
    [new_token] = set(stage.models.tokens)
    assert new_token != old_token


@rule("RX-41")
@case("O6")
async def test_refresh_of_a_killed_worker_is_taken_over(stage: Stage, browser: httpx2.AsyncClient) -> None:
    await connect(browser)
    await expire_token(stage)
    before = stage.provider.counts
    stage.provider.hold("before")
    async with Client(*stage.apis) as client:
        runs = [await client.start("Hi", at=n % 2) for n in range(WAITING)]
        await wait_for(
            lambda: stage.provider.counts.requests > before.requests, what="the refresh has arrived"
        )
        port = urlsplit(stage.provider.issuer).port
        [refreshing] = [worker for worker in stage.workers if is_connected(worker, port)]
        refreshing.kill()
        stage.provider.release()
        stage.workers[stage.workers.index(refreshing)] = stage.launcher.again(refreshing)
        ended = [await client.wait_for(run, TERMINAL, within=SECONDS) for run in runs]
    assert Counter((run["status"], run.get("error_message")) for run in ended) == {
        ("completed", None): WAITING
    }
    assert stage.provider.counts.refresh == before.refresh + 1


def is_connected(worker: EaselProcess, port: int | None) -> bool:
    connections = psutil.Process(worker.pid).net_connections("tcp")
    return any(each.raddr and each.raddr.port == port for each in connections)


@rule("RX-41")
async def test_revoked_connection_is_named_by_the_run_and_by_the_check(
    stage: Stage, browser: httpx2.AsyncClient
) -> None:
    await connect(browser)
    await expire_token(stage)
    stage.provider.revoke_all()
    async with Client(*stage.apis) as client:
        run = await client.wait_for(await client.start("Hi"), within=SECONDS)
        assert run["status"] == "failed"
        assert "connect test again" in run["error_message"]
        check: dict[str, Any] = (await client.post("/api/settings/check")).json()
        assert "connect test again" in check["text"]
        await connect(browser)
        assert (await client.wait_for(await client.start("Hi"), within=SECONDS))["status"] == "completed"


# -- the guide -----------------------------------------------------------------------------------------------

GUIDE = ROOT / "docs" / "guide" / "connections.md"


@rule("RX-42")
async def test_guide_connects_a_provider_step_by_step(tmp_path: Path) -> None:
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    models, port = ModelServer.start(), free_port()
    own = {"8800": str(port), "https://models.example.org/v1": models.base_url, "=…": f"={CLIENT_SECRET}"}
    with (
        OidcProvider([f"http://localhost:{port}/auth/callback"]) as provider,
        Launcher(tmp_path) as launcher,
    ):
        own |= {"https://auth.example.org": provider.issuer}

        def adapt(line: str) -> str:
            for text, value in own.items():
                line = line.replace(text, value)
            return line

        exported = dict(
            adapt(line).removeprefix("export ").split("=", 1) for line in lines if line[:7] == "export "
        )
        easel = launcher.start("up", (*EASEL, "up", "--port", str(port)), {}, exported)
        easel.wait_ready()
        async with httpx2.AsyncClient(timeout=SECONDS, verify=NO_TLS, follow_redirects=True) as browser:
            await browser.get(f"{easel.base_url}/", params={"token": launcher.token})
            answers: list[Any] = []
            for line in lines:
                if not line.startswith("curl "):
                    continue
                asked = parse_curl(adapt(line), EASEL_TOKEN=launcher.token)
                answer = httpx2.request(
                    asked.method, asked.url, headers=asked.headers, content=asked.body, verify=NO_TLS
                )
                answers.append(answer.raise_for_status().json() if answer.content else None)
                if asked.url.endswith("/start"):
                    page = await browser.get(await approve(answers[-1]["authorize_url"]))
                    assert "mymodels is connected" in page.text
    started, chosen, check, listed, removed = answers
    assert set(started) == {"authorize_url"}
    assert (chosen["api_key"], check["ok"]) == (None, True)
    assert [(each["provider"], each["connection"]["connected_by"]) for each in listed["providers"]] == [
        ("mymodels", "owner")
    ]
    assert removed is None
    models.stop()
