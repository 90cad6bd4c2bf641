"""The settings of a model: checks with useful messages, and which value is used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from easel.core.model.choice import Provider
from easel.core.model.settings import (
    DEFAULT_MODELS,
    NAMES,
    VENDORS,
    ApiKey,
    ModelValues,
    Source,
    check_value,
    cleared_by,
    mask,
    needs_key,
    resolve,
    server_of,
)
from easel.errors import BadInput
from tests.requirements import rule

HOST = ModelValues(provider=Provider.ANTHROPIC, model="claude-x", api_key=ApiKey("host-key", "anthropic"))
GATEWAY = ModelValues(
    provider=Provider.OPENAI_CHAT,
    model="llama",
    base_url="http://gateway/v1",
    api_key=ApiKey("host-key", "openai at http://gateway/v1"),
)
NOTHING = ModelValues()


def test_every_provider_has_a_default_model_and_a_vendor() -> None:
    assert set(DEFAULT_MODELS) == set(VENDORS) == {*Provider}


def test_default_models_are_those_of_the_guide() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "models.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([a-z-]+)` \| .* \| `(\S+)` \|$", guide, re.MULTILINE)
    expected = {provider: model for provider, model in DEFAULT_MODELS.items() if provider != "scripted"}
    assert dict(named) == expected


def test_scripted_model_is_used_until_a_provider_is_set() -> None:
    found = resolve(NOTHING, NOTHING)
    assert (found.choice.provider, found.choice.model, found.choice.api_key) == ("scripted", "scripted", "")
    assert set(found.sources) == set(NAMES)
    assert set(found.sources.values()) == {Source.DEFAULT}


@rule("RX-19")
def test_value_of_the_user_is_used_before_that_of_the_host() -> None:
    found = resolve(ModelValues(model="claude-y", token_budget=5_000), HOST)
    assert (found.choice.provider, found.choice.model) == ("anthropic", "claude-y")
    assert (found.choice.token_budget, found.choice.api_key) == (5_000, "host-key")
    assert found.sources["model"] is found.sources["token_budget"] is Source.USER
    assert found.sources["provider"] is found.sources["api_key"] is Source.HOST
    assert found.sources["base_url"] is Source.DEFAULT


@pytest.mark.parametrize(
    "user, host, used",
    [
        (NOTHING, HOST, "host-key"),
        (ModelValues(provider=Provider.ANTHROPIC), HOST, "host-key"),
        # The host's key is sent neither to an address of a user's choice nor to another provider.
        (ModelValues(base_url="http://evil"), HOST, ""),
        (ModelValues(provider=Provider.ANTHROPIC, base_url="http://evil"), HOST, ""),
        (ModelValues(provider=Provider.GEMINI), HOST, ""),
        (ModelValues(provider=Provider.OPENAI_CHAT), HOST, ""),
        (ModelValues(base_url="http://evil"), GATEWAY, ""),
        (NOTHING, GATEWAY, "host-key"),
        (ModelValues(provider=Provider.OPENAI_RESPONSES), GATEWAY, "host-key"),
        (ModelValues(base_url="http://gateway/v1"), GATEWAY, "host-key"),
        # A user's key is sent only to the server that it was set for.
        (ModelValues(api_key=ApiKey("mine", "anthropic")), HOST, "mine"),
        (ModelValues(provider=Provider.GEMINI, api_key=ApiKey("mine", "anthropic")), HOST, ""),
        (ModelValues(base_url="http://a", api_key=ApiKey("mine", "anthropic")), HOST, ""),
        (ModelValues(api_key=ApiKey("mine", "anthropic")), GATEWAY, "host-key"),
        (ModelValues(provider=Provider.OPENAI_CHAT, api_key=ApiKey("mine", "openai")), NOTHING, "mine"),
        (ModelValues(provider=Provider.OPENAI_RESPONSES, api_key=ApiKey("mine", "openai")), NOTHING, "mine"),
        (ModelValues(provider=Provider.SCRIPTED, api_key=ApiKey("mine", "scripted")), HOST, ""),
    ],
)
def test_key_is_used_only_for_its_own_server(user: ModelValues, host: ModelValues, used: str) -> None:
    assert resolve(user, host).choice.api_key == used


def test_key_that_is_not_used_is_explained() -> None:
    user = ModelValues(provider=Provider.GEMINI, api_key=ApiKey("mine", "anthropic"))
    found = resolve(user, NOTHING)
    assert found.note is not None
    assert "set for anthropic" in found.note
    assert "not sent to gemini" in found.note
    assert needs_key(found.choice)
    assert found.sources["api_key"] is Source.DEFAULT


def test_model_and_address_of_the_host_are_not_used_with_another_provider() -> None:
    found = resolve(ModelValues(provider=Provider.GEMINI), GATEWAY).choice
    assert (found.model, found.base_url) == (DEFAULT_MODELS[Provider.GEMINI], "")
    found = resolve(ModelValues(base_url="http://other"), GATEWAY).choice
    assert found.model == DEFAULT_MODELS[Provider.OPENAI_CHAT]


def test_server_at_another_address_may_need_no_key() -> None:
    local = ModelValues(provider=Provider.OPENAI_CHAT, base_url="http://127.0.0.1:11434/v1")
    assert not needs_key(resolve(local, NOTHING).choice)
    assert needs_key(resolve(ModelValues(provider=Provider.OPENAI_CHAT), NOTHING).choice)
    assert server_of(Provider.OPENAI_CHAT, "http://a/") == server_of(Provider.OPENAI_RESPONSES, "http://a")


@pytest.mark.parametrize(
    "own, changes, cleared",
    [
        (ModelValues(model="m", base_url="http://a"), {"provider": "gemini"}, {"model", "base_url"}),
        (ModelValues(model="m", base_url="http://a"), {"provider": "gemini", "model": "n"}, {"base_url"}),
        (ModelValues(model="m"), {"provider": "anthropic"}, set()),
        (ModelValues(model="m"), {"model": None}, set()),
        (ModelValues(provider=Provider.GEMINI, model="m"), {"provider": None}, {"model"}),
        (
            ModelValues(provider=Provider.OPENAI_CHAT, model="m", base_url="http://a"),
            {"provider": "openai-responses"},
            set(),
        ),
    ],
)
def test_change_of_the_vendor_clears_model_and_address(
    own: ModelValues, changes: dict[str, Any], cleared: set[str]
) -> None:
    assert cleared_by(own, HOST, changes) == cleared


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("provider", "anthropc", "Did you mean anthropic?"),
        ("provider", "OpenAI", "Did you mean openai-responses?"),
        ("provider", "claude", "Did you mean anthropic?"),
        ("provider", "xyz", "must be one of scripted, openai-chat"),
        ("provider", "sk-ant-0123456789", "not `[redacted]`"),
        ("provider", 3, "must be one of"),
        ("model", "", "must be a text of 1 to 200"),
        ("model", "a\nb", "printable"),
        ("api_key", "", "must be a text of 1 to 4096"),
        ("api_key", "a b", "without spaces"),
        ("api_key", "kéy", "ASCII"),
        ("api_key", "a\r\nx-header: 1", "printable"),
        ("base_url", "ftp://a", "http or https"),
        ("base_url", "localhost:11434", "http or https"),
        ("base_url", "http://user:pw@a", "must not contain a user name or a password"),
        ("base_url", "http://a/?key=1", "query"),
        ("base_url", "http://[", "http or https"),
        ("base_url", "http://a:99999", "http or https"),
        ("reasoning_effort", "max", "must be one of none, low, medium, high"),
        ("token_budget", 10, "from 4000 to 10000000"),
        ("token_budget", True, "whole number"),
        ("token_budget", "many", "whole number"),
        ("api_kee", "x", "did you mean api_key?"),
        ("nothing", "x", "the settings are provider, model"),
    ],
)
def test_bad_value_is_refused_with_a_useful_message(name: str, value: Any, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_value(name, value)
    assert message in refused.value.message
    if name in ("api_key", "base_url") and value:
        assert str(value) not in refused.value.message


def test_good_values_are_stored_as_text() -> None:
    assert check_value("provider", "openai-chat") == "openai-chat"
    assert check_value("base_url", "http://127.0.0.1:11434/v1/") == "http://127.0.0.1:11434/v1"
    assert check_value("token_budget", 50_000) == check_value("token_budget", "50000") == "50000"


def test_only_the_ends_of_a_long_key_are_shown() -> None:
    assert mask("sk-0123456789abcdefwxyz") == "sk-…wxyz"
    assert mask("short-key") == "set"
