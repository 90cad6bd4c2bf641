"""Which models take the tokens of a provider, and which issuer may answer for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from easel.core.model.choice import ModelChoice, Provider
from easel.core.oauth.connection import GrantedTokens
from easel.core.oauth.provider import OAuthProvider
from tests.requirements import case, rule

OPENAI = OAuthProvider(
    name="openai",
    client_id="easel",
    client_secret="the secret of the client",
    authorize_url="https://auth.example.org/authorize?audience=models",
    token_url="https://auth.example.org/token",
)
OWN = replace(OPENAI, name="own", base_url="https://models.example.org/v1")


@pytest.mark.parametrize(
    "provider, choice, serves",
    [
        (OPENAI, ModelChoice(Provider.OPENAI_CHAT, "m"), True),
        (OPENAI, ModelChoice(Provider.OPENAI_RESPONSES, "m"), True),
        (OPENAI, ModelChoice(Provider.ANTHROPIC, "m"), False),
        (OPENAI, ModelChoice(Provider.OPENAI_CHAT, "m", base_url="https://evil.example"), False),
        (OWN, ModelChoice(Provider.OPENAI_CHAT, "m", base_url="https://models.example.org/v1"), True),
        (OWN, ModelChoice(Provider.ANTHROPIC, "m", base_url="https://models.example.org/v1"), True),
        (OWN, ModelChoice(Provider.OPENAI_CHAT, "m", base_url="https://models.example.org/v2"), False),
        (OWN, ModelChoice(Provider.OPENAI_CHAT, "m"), False),
        (OWN, ModelChoice(Provider.SCRIPTED, "scripted", base_url=OWN.base_url), False),
    ],
)
def test_tokens_are_for_the_server_of_their_provider_only(
    provider: OAuthProvider, choice: ModelChoice, serves: bool
) -> None:
    assert provider.serves(choice) is serves


@case("O5")
@pytest.mark.parametrize(
    "described, issuer, is_issuer",
    [
        ("", None, True),
        ("", "https://auth.example.org", True),
        ("", "https://auth.example.org/tenant", True),
        ("", "https://auth.example.org:444", False),
        ("", "https://auth.example.org@evil.example", False),
        ("", "https://evil.example", False),
        ("", "", False),
        ("", "https://[", False),
        ("https://auth.example.org/a", "https://auth.example.org/a", True),
        ("https://auth.example.org/a", "https://auth.example.org/b", False),
        ("https://auth.example.org/a", None, False),
    ],
)
def test_issuer_of_another_provider_is_not_accepted(
    described: str, issuer: str | None, is_issuer: bool
) -> None:
    assert replace(OPENAI, issuer=described).is_issuer(issuer) is is_issuer


@rule("RX-53")
def test_repr_contains_no_secret() -> None:
    assert OPENAI.client_secret not in repr(OPENAI)
    assert "secret" not in repr(GrantedTokens("secret access", "secret refresh"))


@pytest.mark.parametrize("lifetime, usable", [(3600, 3570), (60, 54), (0, 0), (None, None)])
def test_tokens_are_refreshed_a_little_before_they_expire(
    lifetime: float | None, usable: float | None
) -> None:
    assert GrantedTokens("a", expires_in=lifetime).usable_seconds == usable
