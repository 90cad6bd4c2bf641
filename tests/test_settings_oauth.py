"""The settings of OAuth providers, and what an Easel refuses to start with."""

from __future__ import annotations

import pytest

from easel import settings
from easel.errors import BadSettings
from easel.settings_oauth import PARTS
from tests.requirements import case, rule

SECRET = "the-secret-of-a-client"
OWN = {
    "EASEL_OAUTH_MY_MODELS_CLIENT_ID": "easel",
    "EASEL_OAUTH_MY_MODELS_CLIENT_SECRET": f" {SECRET} ",
    "EASEL_OAUTH_MY_MODELS_AUTHORIZE_URL": "https://auth.example.org/authorize?prompt=consent",
    "EASEL_OAUTH_MY_MODELS_TOKEN_URL": "https://auth.example.org/token",
    "EASEL_OAUTH_MY_MODELS_SCOPES": "models  offline",
    "EASEL_OAUTH_MY_MODELS_BASE_URL": "https://models.example.org/v1/",
}
OPENAI = {"EASEL_OAUTH_OPENAI_CLIENT_ID": "easel"}
PROD = {"EASEL_PROFILE": "prod", "EASEL_PUBLIC_URL": "https://easel.example.org"}
POSTGRES = {"EASEL_DATABASE_URL": "postgresql://u@h/d"}


def refusal(environment: dict[str, str]) -> str:
    with pytest.raises(BadSettings) as refused:
        settings.load(environment)
    assert SECRET not in refused.value.message
    return refused.value.message


def test_providers_are_read_by_name() -> None:
    openai, own = sorted(settings.load({**OWN, **OPENAI}).oauth, key=lambda each: each.name, reverse=True)
    assert (openai.name, own.name) == ("openai", "my-models")
    assert openai.token_url == "https://auth.openai.com/oauth/token"
    assert (own.client_secret, own.scopes) == (SECRET, "models offline")
    assert own.base_url == "https://models.example.org/v1"
    assert settings.load({}).oauth == ()
    unknown = settings.unknown_variables({**OWN, "EASEL_OAUTH_X_CLIENTID": ""})
    assert unknown.keys() == {"EASEL_OAUTH_X_CLIENTID"}
    assert SECRET not in repr(settings.load(OWN))


@pytest.mark.parametrize("part", ["CLIENT_ID", "AUTHORIZE_URL", "TOKEN_URL"])
def test_missing_part_is_named(part: str) -> None:
    variable = f"EASEL_OAUTH_MY_MODELS_{part}"
    assert variable in refusal({**OWN, variable: ""})


@pytest.mark.parametrize(
    "url",
    [
        "http://auth.example.org/",
        "ftp://localhost",
        "https://u:p@h/",
        "https://",
        "https://[",
        "https://h/#f",
    ],
)
def test_secrets_are_sent_by_https(url: str) -> None:
    assert "EASEL_OAUTH_MY_MODELS_TOKEN_URL" in refusal({**OWN, "EASEL_OAUTH_MY_MODELS_TOKEN_URL": url})


@rule("RX-42", "RX-43")
def test_provider_on_this_machine_is_for_development() -> None:
    local = {**OWN, "EASEL_OAUTH_MY_MODELS_TOKEN_URL": "http://127.0.0.1:1/token"}
    assert settings.load(local).oauth
    assert "must be an https address" in refusal({**local, **PROD})


@rule("RX-43")
@pytest.mark.parametrize("public_url", ["", "http://easel.example.org", "http://localhost:8800"])
def test_prod_does_not_start_without_a_public_https_address(public_url: str) -> None:
    message = refusal({**OPENAI, **PROD, "EASEL_PUBLIC_URL": public_url})
    assert "EASEL_PUBLIC_URL" in message
    assert "https" in message
    assert settings.load({**OPENAI, **PROD}).oauth
    assert settings.load({**PROD, "EASEL_PUBLIC_URL": public_url}).is_prod, "without a provider it does"


@case("O11")
@pytest.mark.parametrize("key", ["", "   "])
def test_tokens_are_not_stored_with_a_blank_key(key: str) -> None:
    message = refusal({**OPENAI, **POSTGRES, "EASEL_SECRET_KEY": key})
    assert "EASEL_SECRET_KEY must be set" in message
    assert settings.load({**OPENAI, **POSTGRES, "EASEL_SECRET_KEY": "k" * 32}).oauth


def test_every_part_has_a_description() -> None:
    assert all(part.description.endswith(".") for part in PARTS.values())
    assert [name for name, part in PARTS.items() if part.secret] == ["CLIENT_SECRET"]
