"""The limits of accounts over HTTP: the status, Retry-After and the name of the limit, on two instances."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from easel.errors import TooMany
from easel.ids import AccountId
from tests.edges.http.live import WAIT_SECONDS, WAITING, LiveEasel, new_session
from tests.edges.http.test_bad_input import check_error
from tests.support.gateway import GatewayClient
from tests.support.strict_http import STRICT
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE, BURST = 4, 20
LIMITS = f"requests_per_second={RATE},streams=3,runs=1,queued_runs=3,stored_mb=1"


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory, module_database_url: str) -> Iterator[LiveEasel]:
    """Two API edges and a worker that share only Postgres."""
    settings = {"account_limits": LIMITS}
    with LiveEasel(tmp_path_factory.mktemp("easel"), module_database_url, edges=2, settings=settings) as live:
        yield live


@dataclass
class Account:
    """A client of a new account, whose requests wait for their turn if they are refused for their rate."""

    easel: LiveEasel
    account_id: AccountId
    token: str
    http: httpx2.Client

    def send(self, method: str, path: str, at: int = 0, **how: Any) -> httpx2.Response:
        return self.http.request(method, self.easel.instances[at].base_url + path, **how)

    def start(self, message: str = "noop", at: int = 0) -> httpx2.Response:
        return self.send("POST", "/api/runs", at, json={"session_id": new_session(), "message": message})


@pytest.fixture
def account(limited: LiveEasel) -> Iterator[Account]:
    name = f"user-{secrets.token_hex(4)}"
    limited.add_person(name)
    _, token = limited.new_token("user", name)
    with httpx2.Client(
        headers={"Authorization": f"Bearer {token}"}, timeout=WAIT_SECONDS, event_hooks=STRICT
    ) as http:
        yield Account(limited, AccountId(name), token, http)


def check_limit(answer: httpx2.Response, status: int, limit: str, maximum: int) -> None:
    error = check_error(answer, status)
    assert error["details"] == {"limit": limit, "maximum": maximum}
    assert limit in error["message"]
    assert ("retry-after" in answer.headers) == (status == 429)


def test_requests_over_the_rate_get_429_and_other_accounts_none(limited: LiveEasel, account: Account):
    answers = [account.send("GET", "/api/sessions") for _ in range(3 * BURST)]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(refused) > BURST
    check_limit(refused[-1], 429, "requests_per_second", RATE)
    assert limited.get("/api/sessions").status_code == 200
    assert account.send("GET", "/healthz").status_code == 200


async def test_requests_over_the_rate_are_refused_on_a_connection_that_stays(
    limited: LiveEasel, account: Account
):
    async with GatewayClient.connected(limited.base_url, account.token) as client:
        refused = [found for _ in range(2 * BURST) if (found := await client.refusal("ping"))]
        assert refused
        assert refused[0].error["code"] == 429
        assert refused[0].error["details"]["limit"] == "requests_per_second"
        assert refused[0].error["retryable"]


def test_streams_of_all_instances_count_together(account: Account):
    run_id = account.start(WAITING).json()["run_id"]
    path = f"/api/runs/{run_id}/events"
    with contextlib.ExitStack() as streams:
        for at in (0, 0, 1):
            url = account.easel.instances[at].base_url + path
            assert streams.enter_context(account.http.stream("GET", url)).status_code == 200
        elsewhere = account.easel.instances[1].services.usage

        def is_refused() -> bool:
            try:
                elsewhere.check("streams", account.account_id)
            except TooMany:
                return True
            return False

        wait_for_sync(is_refused, within=WAIT_SECONDS, what="the other instance counts all three")
        check_limit(account.send("GET", path, 1), 429, "streams", 3)
    wait_for_sync(lambda: not is_refused(), within=WAIT_SECONDS, what="all are closed")
    account.send("POST", f"/api/runs/{run_id}/cancel")


def test_runs_wait_for_each_other_and_too_many_of_them_are_refused(account: Account):
    first = account.start(WAITING).json()["run_id"]

    def status_of(run_id: str) -> str:
        return account.easel.sql(f"select status from runs where run_id = '{run_id}'")[0]["status"]

    wait_for_sync(lambda: status_of(first) == "running", within=WAIT_SECONDS, what="the first run starts")
    waiting = [account.start(at=nth % 2).json()["run_id"] for nth in range(3)]
    check_limit(account.start(), 429, "queued_runs", 3)
    assert [status_of(run_id) for run_id in waiting] == ["queued"] * 3
    account.easel.finish()  # another account's run does not wait for them
    account.send("POST", f"/api/runs/{first}/cancel")
    for run_id in waiting:
        wait_for_sync(lambda of=run_id: status_of(of) == "completed", within=WAIT_SECONDS, what=run_id)


def test_upload_over_the_stored_bytes_gets_413(account: Account):
    stored = account.send("POST", "/api/artifacts", content=b"x" * 1_000_001)
    assert stored.status_code == 201
    check_limit(account.send("POST", "/api/artifacts", at=1, content=b"y"), 413, "stored_mb", 1)
