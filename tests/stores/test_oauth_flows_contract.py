"""The flows of OAuth on every store: consumed once, by the browser that began them, within ten minutes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.oauth.flow import FLOW_SECONDS, Flow
from easel.ids import OWNER, AccountId, UserId
from tests.requirements import case, rule

if TYPE_CHECKING:
    from easel.host.ports import OAuthFlowStore
    from tests.stores.harness import Store

ME = UserId(OWNER)
FLOW = Flow(
    state="state",
    code_verifier="verifier",
    provider="openai",
    account_id=OWNER,
    user_id=ME,
    sign_in_id="sign_1",
    redirect_uri="https://easel.example.org/api/oauth/openai/callback",
    origin="https://easel.example.org",
)


@pytest.fixture
def flows(store: Store) -> OAuthFlowStore:
    return store.database.oauth_flows


@rule("RX-21", "RX-39")
async def test_flow_is_found_until_it_is_consumed(flows: OAuthFlowStore) -> None:
    assert await flows.start(FLOW, FLOW_SECONDS)
    assert await flows.find("state") == FLOW
    assert await flows.consume("state", ME, "sign_1") == FLOW
    assert await flows.find("state") is None
    assert await flows.consume("state", ME, "sign_1") is None


@rule("RX-44")
@case("O1")
async def test_one_of_many_consumers_gets_the_flow(flows: OAuthFlowStore) -> None:
    await flows.start(FLOW, FLOW_SECONDS)
    found = await asyncio.gather(*(flows.consume("state", ME, "sign_1") for _ in range(20)))
    assert [flow for flow in found if flow is not None] == [FLOW]


@case("O2")
async def test_other_person_and_other_sign_in_do_not_consume_a_flow(
    flows: OAuthFlowStore, store: Store
) -> None:
    mallory = UserId(await store.add_user("mallory"))
    await flows.start(FLOW, FLOW_SECONDS)
    for user_id, sign_in_id in ((mallory, "sign_1"), (ME, "sign_2"), (ME, None)):
        assert await flows.consume("state", user_id, sign_in_id) is None
    assert await flows.consume("state", ME, "sign_1") == FLOW


async def test_flow_of_a_token_is_consumed_in_any_browser_of_its_person(
    flows: OAuthFlowStore, store: Store
) -> None:
    mallory = UserId(await store.add_user("mallory"))
    flow = replace(FLOW, sign_in_id=None)
    await flows.start(flow, FLOW_SECONDS)
    assert await flows.consume("state", mallory, None) is None
    assert await flows.consume("state", ME, "sign_9") == flow


@rule("RX-39")
@case("O5")
async def test_expired_flow_is_refused_and_swept_by_the_next_start(
    flows: OAuthFlowStore, store: Store
) -> None:
    await flows.start(FLOW, 0)
    assert await flows.find("state") is None
    assert await flows.consume("state", ME, "sign_1") is None
    await flows.start(replace(FLOW, state="next"), FLOW_SECONDS)
    assert [row["state"] for row in await store.sql("select state from oauth_state")] == ["next"]


async def test_flow_of_a_missing_account_is_not_stored(flows: OAuthFlowStore) -> None:
    assert not await flows.start(replace(FLOW, account_id=AccountId("none")), FLOW_SECONDS)
    assert not await flows.start(replace(FLOW, user_id=UserId("none")), FLOW_SECONDS)
