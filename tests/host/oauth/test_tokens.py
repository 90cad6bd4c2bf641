"""The access token of a connection: refreshed once, by one process, whatever fails in the meantime."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.oauth.connection import GrantedTokens, NewConnection
from easel.core.oauth.provider import OAuthProvider
from easel.errors import HostError, ModelFailed, ProviderRefused, ProviderUnreachable, Unavailable
from easel.host.audit.audit import Audit
from easel.host.oauth.tokens import AccessTokens, encode_tokens
from easel.ids import OWNER, UserId, new_revision_id
from easel.stores.encryption import SecretBox
from tests.requirements import case, rule
from tests.support.waiting import wait_for, within_timeout

if TYPE_CHECKING:
    from easel.stores.sqlite import SqliteDatabase
    from tests.host.conftest import RunHarness

PROVIDER = OAuthProvider(
    name="test", client_id="easel", client_secret="", authorize_url="https://a/a", token_url="https://a/t"
)
FRESH = GrantedTokens("fresh access", "fresh refresh", 3600.0)
CLAIM_SECONDS = 60.0


@dataclass
class ScriptedClient:
    """A provider whose answers are in the test; each is an answer or an error."""

    answers: list[GrantedTokens | HostError] = field(default_factory=list[Any])
    asked: list[str] = field(default_factory=list[str])
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()

    async def refresh(self, _: OAuthProvider, refresh_token: str) -> GrantedTokens:
        self.asked.append(refresh_token)
        await self.may_answer.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, HostError):
            raise answer
        return answer


@dataclass
class Instances:
    """Two instances on one database, with one provider."""

    database: SqliteDatabase
    client: ScriptedClient
    tokens: list[AccessTokens]
    cipher: SecretBox

    async def connect(self, access: str = "old access", refresh: str | None = "old refresh") -> None:
        secret = self.cipher.encrypt(OWNER, "test", encode_tokens(GrantedTokens(access, refresh)))
        new = NewConnection(OWNER, "test", UserId(OWNER), "", new_revision_id(), secret, 0.0)
        assert await self.database.connections.connect(new)

    async def get(self, at: int = 0) -> str | None:
        return await within_timeout(self.tokens[at].get(OWNER, PROVIDER))


@pytest.fixture
async def instances(harness: RunHarness) -> Any:
    client, cipher = ScriptedClient(), SecretBox("k" * 32, table="auth")
    audit = Audit(harness.database.audit)
    tokens = [
        AccessTokens(
            harness.database.connections,
            cipher,
            client,  # type: ignore[arg-type]  # only refreshes are asked for
            audit,
            claim_seconds=CLAIM_SECONDS,
            new_id=new_revision_id,
        )
        for _ in range(2)
    ]
    yield Instances(harness.database, client, tokens, cipher)
    for each in tokens:
        await each.close()
    await audit.close()


async def test_without_a_connection_there_is_no_token(instances: Instances) -> None:
    assert await instances.get() is None


@rule("RX-41")
@case("O6")
async def test_all_waiters_of_both_instances_get_the_token_of_one_refresh(instances: Instances) -> None:
    await instances.connect()
    instances.client.answers = [FRESH]
    got = await asyncio.gather(*(instances.get(n % 2) for n in range(20)))
    assert set(got) == {"fresh access"}
    assert instances.client.asked == ["old refresh"]


@rule("RX-41")
async def test_refresh_token_that_is_not_rotated_is_kept(instances: Instances) -> None:
    await instances.connect()
    instances.client.answers = [GrantedTokens("one", None, 0.0), GrantedTokens("two", "rotated", 0.0), FRESH]
    # Tokens that expire at once are used once each.
    assert [await instances.get() for _ in range(3)] == ["one", "two", "fresh access"]
    assert instances.client.asked == ["old refresh", "old refresh", "rotated"]


@rule("RX-41")
async def test_cancelled_caller_does_not_lose_the_answer(instances: Instances) -> None:
    await instances.connect()
    instances.client.answers = [FRESH]
    instances.client.may_answer.clear()
    caller = asyncio.create_task(instances.get())
    await wait_for(lambda: bool(instances.client.asked), what="the provider is asked")
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    closing = asyncio.create_task(instances.tokens[0].close())
    instances.client.may_answer.set()
    await within_timeout(closing)
    assert await instances.get(1) == "fresh access"
    assert instances.client.asked == ["old refresh"]


@rule("RX-41")
async def test_answer_is_stored_when_the_database_is_available_again(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    await instances.connect()
    instances.client.answers = [FRESH]
    store, failures = instances.database.connections, [1, 2]
    save = store.save_refreshed

    async def save_later(*args: Any, **named: Any) -> bool:
        if failures:
            failures.pop()
            raise Unavailable(what="The database")
        return await save(*args, **named)

    monkeypatch.setattr(store, "save_refreshed", save_later)
    monkeypatch.setattr("easel.host.oauth.tokens.RETRY_SECONDS", 0.0)
    assert await instances.get() == "fresh access"
    assert (failures, instances.client.asked) == ([], ["old refresh"])


@rule("RX-41")
async def test_removal_wins_over_a_refresh_in_flight(instances: Instances) -> None:
    await instances.connect()
    instances.client.answers = [FRESH]
    instances.client.may_answer.clear()
    caller = asyncio.create_task(instances.get())
    await wait_for(lambda: bool(instances.client.asked), what="the provider is asked")
    assert await instances.database.connections.delete(OWNER, "test")
    instances.client.may_answer.set()
    assert await caller is None
    assert await instances.database.connections.list_connections(OWNER) == []


@rule("RX-41")
async def test_new_connection_wins_over_a_refresh_in_flight(instances: Instances) -> None:
    await instances.connect()
    instances.client.answers = [GrantedTokens("of the old one"), FRESH]
    instances.client.may_answer.clear()
    caller = asyncio.create_task(instances.get())
    await wait_for(lambda: bool(instances.client.asked), what="the provider is asked")
    await instances.connect(refresh="new refresh")
    instances.client.may_answer.set()
    assert await caller == "fresh access"
    assert instances.client.asked == ["old refresh", "new refresh"]


@rule("RX-41")
async def test_revoked_connection_asks_to_connect_again(instances: Instances) -> None:
    await instances.connect()
    instances.client.answers = [ProviderRefused(provider="test", error="invalid_grant")]
    for at in (0, 1):
        with pytest.raises(ModelFailed, match="connect test again"):
            await instances.get(at)
    assert len(instances.client.asked) == 1
    await instances.connect()
    instances.client.answers = [FRESH]
    assert await instances.get() == "fresh access"


async def test_connection_without_a_refresh_token_ends_with_its_access_token(instances: Instances) -> None:
    await instances.connect(refresh=None)
    with pytest.raises(ModelFailed, match="connect test again"):
        await instances.get()
    assert instances.client.asked == []


@rule("RX-41")
@pytest.mark.parametrize(
    "problem",
    [
        ProviderUnreachable(provider="test", problem="answered 503"),
        ProviderRefused(provider="test", error="invalid_client"),
    ],
)
async def test_failed_refresh_is_repeated_by_the_next_caller(
    instances: Instances, problem: HostError
) -> None:
    await instances.connect()
    instances.client.answers = [problem, FRESH]
    with pytest.raises(type(problem)):
        await instances.get(0)
    assert await instances.get(1) == "fresh access"
    assert instances.client.asked == ["old refresh", "old refresh"]


@rule("RX-41")
async def test_request_ends_before_its_claim_does(instances: Instances) -> None:
    await instances.connect()
    instances.client.may_answer.clear()
    tokens = instances.tokens[0]
    tokens._claim_seconds = 0.03
    with pytest.raises(ProviderUnreachable, match="did not answer within"):
        await instances.get(0)
    instances.client.may_answer.set()
    instances.client.answers = [FRESH]
    assert await instances.get(1) == "fresh access"
