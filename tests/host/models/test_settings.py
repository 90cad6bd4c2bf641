"""The settings of users: who may change them, secrets, the cache, and the model that a step uses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.assembly.models import _public_network
from easel.core.model.choice import ModelChoice, Provider
from easel.core.model.settings import DEFAULT_MODELS, ApiKey, ModelValues
from easel.core.principal import Principal, PrincipalKind
from easel.core.run.conversation import Conversation, Part, Text
from easel.core.stream.notifications import SettingsChanged, from_text, to_text
from easel.errors import BadInput, Forbidden, ModelFailed, SecretsUnavailable
from easel.host.models.addresses import BaseUrls
from easel.host.models.choice import ChosenModels
from easel.host.models.settings import UserSettings, rotate
from easel.ids import OWNER, AccountId, RunId
from easel.llm.build import CHECK_SETTINGS, Models
from easel.llm.scripted import ScriptedModel
from easel.stores.encryption import SecretBox
from tests.requirements import rule
from tests.support.principals import THE_OWNER, agent_of, person
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from easel.core.tool.definition import ToolDefinition
    from easel.host.ports import Notifier
    from tests.host.conftest import RunHarness

KEY = "sk-ant-0123456789-distinctive"
HOST_KEY = "sk-host-0123456789-distinctive"
SECRET_KEY = "s" * 32
HOST = ModelValues(provider=Provider.ANTHROPIC, api_key=ApiKey(HOST_KEY, "anthropic"))


class NoNotifier:
    """A notifier whose notifications are lost."""

    def listen(self, callback: Any) -> None:
        pass

    def notify(self, notification: Any) -> None:
        pass


def settings_of(
    harness: RunHarness,
    *,
    host: ModelValues | None = None,
    cipher: SecretBox | None = None,
    notifier: Notifier | None = None,
    clock: Any = None,
    allow_private: bool = False,
    addresses: Mapping[str, str] | None = None,
) -> UserSettings:
    async def resolve(name: str) -> list[str]:
        if addresses is not None and name in addresses:
            return [addresses[name]]
        return [name] if name.replace(".", "").isdigit() else ["93.184.215.14"]

    return UserSettings(
        harness.database.settings,
        cipher or SecretBox(SECRET_KEY),
        notifier or harness.database.notifier,
        harness.audit,
        host or ModelValues(),
        base_urls=BaseUrls(harness.database.accounts.find_person, resolve, allow_private=allow_private),
        **({} if clock is None else {"clock": clock}),
    )


@rule("RX-19")
async def test_key_is_masked_and_its_source_is_named(harness: RunHarness) -> None:
    settings = settings_of(harness)
    shown = await settings.change(THE_OWNER, {"provider": "anthropic", "api_key": KEY})
    assert shown.values["api_key"] == "sk-…tive"
    assert shown.sources["api_key"] == "user"
    assert KEY not in repr(shown)
    assert await settings.get(THE_OWNER) == shown
    choice = (await settings.find_model(OWNER)).resolved.choice
    assert choice.api_key == KEY
    assert KEY not in repr(choice)


@rule("RX-19")
async def test_nothing_of_the_host_s_key_is_shown(harness: RunHarness) -> None:
    shown = await settings_of(harness, host=HOST).get(THE_OWNER)
    assert shown.values["api_key"] == "set"
    assert shown.sources["api_key"] == "host"


async def test_change_is_audited_without_the_key(harness: RunHarness) -> None:
    settings = settings_of(harness)
    await settings.change(THE_OWNER, {"provider": "gemini", "api_key": "plainkey12345", "model": None})
    [record] = await harness.audit.list_records(THE_OWNER, action="settings.changed", limit=10)
    assert '"changed":["api_key","model","provider"]' in record.record
    assert '"provider":"gemini"' in record.record
    assert "plainkey" not in record.record


@rule("RX-54")
@pytest.mark.parametrize(
    "principal", [agent_of(OWNER, RunId("run_1")), replace(THE_OWNER, kind=PrincipalKind.NODE, user_id=None)]
)
async def test_agents_and_nodes_cannot_reach_settings(harness: RunHarness, principal: Any) -> None:
    settings = settings_of(harness)
    models = ChosenModels(settings, lambda _: ScriptedModel())
    for call in (
        settings.get(principal),
        settings.change(principal, {"model": "x"}),
        models.check(principal),
    ):
        with pytest.raises(Forbidden):
            await call
    service = replace(THE_OWNER, kind=PrincipalKind.SERVICE, user_id=None)
    assert (await settings.change(service, {"token_budget": 5_000})).values["token_budget"] == 5_000


async def test_refused_change_stores_nothing(harness: RunHarness) -> None:
    settings = settings_of(harness)
    for changes in (
        {"model": "m", "provider": "nope"},
        {"model": "m", "api_key": KEY},  # there is no provider that it could belong to
    ):
        with pytest.raises(BadInput):
            await settings.change(THE_OWNER, changes)
    assert await harness.database.settings.read(OWNER) == {}


@rule("RX-02")
async def test_change_is_used_by_every_instance_when_it_is_notified(harness: RunHarness) -> None:
    one, two = settings_of(harness), settings_of(harness, clock=lambda: 0.0)
    assert (await two.find_model(OWNER)).resolved.choice.provider == "scripted"
    await one.change(THE_OWNER, {"provider": "gemini"})
    assert (await one.find_model(OWNER)).resolved.choice.provider == "gemini"

    async def is_used() -> bool:
        return (await two.find_model(OWNER)).resolved.choice.provider == "gemini"

    await wait_for(is_used, what="the other instance uses the change")
    notification = SettingsChanged(OWNER)
    assert from_text(to_text(notification)) == notification


async def test_lost_notification_delays_a_change_by_a_second(harness: RunHarness) -> None:
    seconds = 0.0
    one = settings_of(harness, notifier=NoNotifier())
    two = settings_of(harness, notifier=NoNotifier(), clock=lambda: seconds)
    await two.find_model(OWNER)
    await one.change(THE_OWNER, {"provider": "gemini"})
    seconds = 0.9
    assert (await two.find_model(OWNER)).resolved.choice.provider == "scripted"
    seconds = 1.0
    assert (await two.find_model(OWNER)).resolved.choice.provider == "gemini"


async def test_read_that_began_before_a_change_is_not_cached(harness: RunHarness) -> None:
    settings = settings_of(harness, clock=lambda: 0.0)
    store, reads = harness.database.settings, []
    original = store.read

    async def slow_read(account_id: Any) -> Any:
        rows = await original(account_id)
        reads.append(account_id)
        if len(reads) == 1:
            await settings.change(THE_OWNER, {"provider": "gemini"})
        return rows

    store.read = slow_read
    assert (await settings.find_model(OWNER)).resolved.choice.provider == "scripted"
    assert (await settings.find_model(OWNER)).resolved.choice.provider == "gemini"


async def test_changed_secret_key_is_explained_and_settings_stay_usable(harness: RunHarness) -> None:
    await settings_of(harness).change(THE_OWNER, {"provider": "anthropic", "api_key": KEY})
    changed = settings_of(harness, cipher=SecretBox("t" * 32), host=HOST)
    shown = await changed.get(THE_OWNER)
    assert shown.values["api_key"] == "unreadable"
    assert shown.note is not None
    assert "EASEL_OLD_SECRET_KEYS" in shown.note
    with pytest.raises(SecretsUnavailable, match="EASEL_OLD_SECRET_KEYS"):  # and not the host's key instead
        await ChosenModels(changed, lambda _: ScriptedModel()).choose(OWNER)
    await changed.change(THE_OWNER, {"api_key": KEY})
    assert (await changed.find_model(OWNER)).resolved.choice.api_key == KEY


async def test_rotation_encrypts_every_secret_with_the_new_key(harness: RunHarness) -> None:
    await settings_of(harness).change(THE_OWNER, {"provider": "anthropic", "api_key": KEY})
    store, both = harness.database.settings, SecretBox("t" * 32, [SECRET_KEY])
    assert await rotate(store, both) == 1
    assert await rotate(store, both) == 0
    new = settings_of(harness, cipher=SecretBox("t" * 32))
    assert (await new.find_model(OWNER)).resolved.choice.api_key == KEY
    with pytest.raises(SecretsUnavailable):
        await rotate(store, SecretBox(None))


# --- the models of the settings -----------------------------------------------------------------------------


async def test_model_follows_a_change_of_the_settings(harness: RunHarness) -> None:
    settings = settings_of(harness, host=HOST)
    models = ChosenModels(settings, lambda _: ScriptedModel())
    choice, _model = await models.choose(OWNER)
    assert (choice.api_key, choice.model) == (HOST_KEY, DEFAULT_MODELS[Provider.ANTHROPIC])
    await settings.change(THE_OWNER, {"model": "m", "token_budget": 5_000})
    choice, _model = await models.choose(OWNER)
    assert (choice.api_key, choice.model, choice.token_budget) == (HOST_KEY, "m", 5_000)


async def test_missing_key_is_explained(harness: RunHarness) -> None:
    settings = settings_of(harness)
    models = ChosenModels(settings, lambda _: ScriptedModel())
    await settings.change(THE_OWNER, {"provider": "anthropic"})
    with pytest.raises(ModelFailed, match="no API key is set for anthropic; set it with"):
        await models.choose(OWNER)
    assert not (await models.check(THE_OWNER)).is_ok


class EchoingModel:
    """A model whose provider repeats the request in its error."""

    is_remote = True

    def __init__(self, choice: ModelChoice, how: str) -> None:
        self.key = choice.api_key
        self.how = how

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        yield Text("begin")
        match self.how:
            case "message":
                raise ModelFailed(reason=f"401: Authorization: Bearer {self.key}")
            case "cause":
                raise ModelFailed(reason="401") from RuntimeError(f"key {self.key}")
            case "quoted":
                raise RuntimeError(f"GET /?key={self.key.replace('/', '%2F')}")
            case _:
                raise ModelFailed(reason="no secret here") from RuntimeError("cause")


@pytest.mark.parametrize("how", ["message", "cause", "quoted"])
async def test_error_of_a_model_is_without_its_key(harness: RunHarness, how: str) -> None:
    key = "odd/key-without-known-shape"
    host = replace(HOST, api_key=ApiKey(key, "anthropic"))
    models = ChosenModels(settings_of(harness, host=host), lambda choice: EchoingModel(choice, how))
    _, model = await models.choose(OWNER)
    with pytest.raises(ModelFailed) as failed:
        async for _ in model.reply(Conversation("x"), ()):
            pass
    shown = f"{failed.value!r} {failed.value.details} {failed.value.__cause__!r}"
    assert "odd" not in shown
    assert failed.value.__suppress_context__


async def test_error_without_a_key_keeps_its_cause(harness: RunHarness) -> None:
    models = ChosenModels(settings_of(harness, host=HOST), lambda choice: EchoingModel(choice, "plain"))
    _, model = await models.choose(OWNER)
    assert model.is_remote
    with pytest.raises(ModelFailed, match="no secret here") as failed:
        async for _ in model.reply(Conversation("x"), ()):
            pass
    assert isinstance(failed.value.__cause__, RuntimeError)


# --- addresses that are not public --------------------------------------------------------------------------

ANN = person("ann", "Ann")
IN_TEAM = replace(THE_OWNER, account_id=AccountId("devs"))
PRIVATE = (
    "http://127.0.0.1:11434/v1",
    "http://10.0.0.7",
    "http://169.254.169.254",
    "http://inside.example/v1",
)


async def add_accounts(harness: RunHarness) -> None:
    await harness.sql("insert into accounts (account_id) values ('ann')")
    await harness.sql("insert into people (user_id) values ('ann')")
    await harness.sql("insert into accounts (account_id, kind) values ('devs', 'team')")


@rule("RX-54", "RS-76")
@pytest.mark.parametrize("principal", [ANN, IN_TEAM], ids=["a person", "an operator, for a team"])
async def test_private_address_of_a_person_or_team_needs_the_operators_setting(
    harness: RunHarness, principal: Principal
) -> None:
    await add_accounts(harness)
    inside = {"inside.example": "192.168.1.9"}
    settings = settings_of(harness, addresses=inside)
    for base_url in PRIVATE:
        with pytest.raises(BadInput, match="EASEL_PRIVATE_BASE_URLS"):
            await settings.change(principal, {"provider": "openai-chat", "base_url": base_url})
    await settings.change(principal, {"provider": "openai-chat", "base_url": "https://models.example"})
    allowing = settings_of(harness, addresses=inside, allow_private=True)
    for base_url in PRIVATE:
        await allowing.change(principal, {"base_url": base_url})
        assert not (await allowing.find_model(principal.account_id)).resolved.choice.is_public_only


@rule("RX-54")
async def test_operator_uses_a_private_address_in_their_own_account_without_the_setting(
    harness: RunHarness,
) -> None:
    settings = settings_of(harness)
    await settings.change(THE_OWNER, {"provider": "openai-chat", "base_url": PRIVATE[0]})
    choice = (await settings.find_model(OWNER)).resolved.choice
    assert (choice.base_url, choice.is_public_only) == (PRIVATE[0], False)


@rule("RX-54")
async def test_address_is_checked_again_before_a_request(harness: RunHarness) -> None:
    """The name led to a public address when it was saved; or the setting was on then."""
    await add_accounts(harness)
    addresses = {"models.example": "93.184.215.14"}
    settings = settings_of(harness, addresses=addresses)
    await settings.change(ANN, {"provider": "openai-chat", "base_url": "https://models.example"})
    models = ChosenModels(settings, lambda _: ScriptedModel())
    await models.choose(ANN.account_id)
    addresses["models.example"] = "127.0.0.1"
    with pytest.raises(ModelFailed, match="EASEL_PRIVATE_BASE_URLS"):
        await models.choose(ANN.account_id)


@rule("RX-54")
async def test_hosts_own_private_address_is_used_by_everybody(harness: RunHarness) -> None:
    await add_accounts(harness)
    host = ModelValues(provider=Provider.OPENAI_CHAT, base_url=PRIVATE[0])
    choice = (await settings_of(harness, host=host).find_model(ANN.account_id)).resolved.choice
    assert (choice.base_url, choice.is_public_only) == (PRIVATE[0], False)


@rule("RX-54")
async def test_connection_of_a_public_only_model_refuses_a_private_address() -> None:
    """Also when the name led to a public address at the check just before."""
    connected: list[object] = []
    server = await asyncio.start_server(lambda *streams: connected.append(streams), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        models = Models(CHECK_SETTINGS, _public_network)
        choice = ModelChoice(
            Provider.OPENAI_CHAT, "m", "key", base_url=f"http://127.0.0.1:{port}/v1", is_public_only=True
        )
        try:
            with pytest.raises(ModelFailed):
                async for _ in models.build_model(choice).reply(Conversation("hello", ()), []):
                    pass
        finally:
            await models.close()
    assert connected == []
