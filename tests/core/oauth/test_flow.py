"""Which address a provider may call back, exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from easel.core.oauth.flow import CallbackRule, Flow, is_loopback
from easel.errors import BadInput
from easel.ids import OWNER, UserId
from tests.requirements import case, rule

PUBLIC = "https://easel.example.org"
PROD = CallbackRule(PUBLIC, allows_loopback=False)
LOCAL = CallbackRule("", allows_loopback=True)


def flow(rule: CallbackRule, origin: str = "http://127.0.0.1:8800") -> Flow:
    redirect_uri = rule.redirect_uri("openai", origin)
    return Flow("state", "verifier", "openai", OWNER, UserId(OWNER), None, redirect_uri, origin)


@rule("RX-43")
def test_prod_is_called_back_at_its_public_address_only() -> None:
    begun = flow(PROD)
    assert begun.redirect_uri == f"{PUBLIC}/api/oauth/openai/callback"
    assert PROD.accepts(begun, "/api/oauth/openai/callback")
    with pytest.raises(BadInput, match="EASEL_PUBLIC_URL"):
        CallbackRule("", allows_loopback=False).redirect_uri("openai", "http://127.0.0.1:8800")


@rule("RX-42")
@pytest.mark.parametrize("origin", ["http://127.0.0.1:8800", "http://localhost:8800", "http://[::1]:8800"])
def test_development_is_called_back_on_loopback_at_the_port_of_the_browser(origin: str) -> None:
    begun = flow(LOCAL, origin)
    assert begun.redirect_uri == "http://localhost:8800/auth/callback"
    assert LOCAL.accepts(begun, "/auth/callback")


@rule("RX-42")
@pytest.mark.parametrize(
    "origin", ["http://192.0.2.7:8800", "http://evil.example", "http://localhost.evil.example"]
)
def test_loopback_is_for_a_browser_on_the_same_machine(origin: str) -> None:
    with pytest.raises(BadInput, match="EASEL_PUBLIC_URL"):
        LOCAL.redirect_uri("openai", origin)


@case("O4")
@pytest.mark.parametrize(
    "path",
    [
        "/auth/callback",
        "/api/oauth/openai/callback/",
        "/api/oauth/OpenAI/callback",
        "/api/oauth/other/callback",
        "//api/oauth/openai/callback",
    ],
)
def test_another_path_is_not_accepted(path: str) -> None:
    assert not PROD.accepts(flow(PROD), path)


@rule("RX-43")
@case("O4")
def test_flow_of_another_profile_or_address_is_not_accepted() -> None:
    assert not PROD.accepts(flow(LOCAL), "/auth/callback")
    assert not CallbackRule("", allows_loopback=False).accepts(flow(LOCAL), "/auth/callback")
    for changed in (f"{PUBLIC}:444/api/oauth/openai/callback", f"{PUBLIC}@evil/api/oauth/openai/callback"):
        assert not PROD.accepts(replace(flow(PROD), redirect_uri=changed), "/api/oauth/openai/callback")


@rule("RX-42")
def test_callback_at_another_host_name_is_sent_to_where_the_flow_began() -> None:
    assert LOCAL.other_origin(flow(LOCAL), "localhost:8800") == "http://127.0.0.1:8800"
    assert LOCAL.other_origin(flow(LOCAL), "127.0.0.1:8800") is None
    elsewhere = replace(flow(LOCAL), origin="http://evil.example")
    assert LOCAL.other_origin(elsewhere, "localhost:8800") is None, "never away from this machine"
    assert PROD.other_origin(flow(PROD), "localhost:8800") is None


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.8.0.1", "::1"])
def test_loopback_names(host: str) -> None:
    assert is_loopback(host)
    assert not is_loopback(f"{host}.example.org")
