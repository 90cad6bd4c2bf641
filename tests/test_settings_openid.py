"""The settings of sign-in by OpenID Connect: which are needed, and what is refused at the start."""

from __future__ import annotations

import pytest

from easel import settings
from easel.errors import BadSettings
from tests.requirements import rule

SECRET = "the client's secret"
GOOD = {
    "EASEL_OIDC_ISSUER": "https://issuer.example/realm/",
    "EASEL_OIDC_CLIENT_ID": "easel",
    "EASEL_OIDC_CLIENT_SECRET": SECRET,
    "EASEL_OIDC_ALLOWED": "@example.com",
    "EASEL_PUBLIC_URL": "https://easel.example.org",
}


def test_provider_is_described_by_the_settings() -> None:
    loaded = settings.load({**GOOD, "EASEL_PROFILE": "prod"})
    assert loaded.openid is not None
    assert (loaded.openid.issuer, loaded.openid.name) == ("https://issuer.example/realm/", "issuer.example")
    assert loaded.openid.allowed.allows("ada@example.com")
    assert SECRET not in repr(loaded)
    assert SECRET not in repr(loaded.openid)
    assert settings.load({}).openid is None


@rule("RX-43")
@pytest.mark.parametrize(
    "changes, words",
    [
        ({"EASEL_OIDC_ISSUER": ""}, "EASEL_OIDC_ISSUER must be set"),
        ({"EASEL_OIDC_CLIENT_ID": ""}, "EASEL_OIDC_CLIENT_ID must be set"),
        ({"EASEL_OIDC_ISSUER": "http://issuer.example"}, "must be an https address"),
        ({"EASEL_OIDC_ISSUER": "https://issuer.example?x=1"}, "must be an https address"),
        ({"EASEL_OIDC_ISSUER": "https://a:b@issuer.example"}, "must be an https address"),
        ({"EASEL_OIDC_ISSUER": "issuer.example"}, "must be an https address"),
        ({"EASEL_OIDC_ALLOWED": "example.com"}, "is neither"),
        ({"EASEL_PUBLIC_URL": "", "EASEL_PROFILE": "prod"}, "EASEL_PUBLIC_URL must be an https address"),
        (
            {"EASEL_PROFILE": "prod", "EASEL_OIDC_ISSUER": "http://127.0.0.1:9400"},
            "EASEL_OIDC_ISSUER must be an https address",
        ),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_together_are_refused(changes: dict[str, str], words: str) -> None:
    with pytest.raises(BadSettings, match=words) as caught:
        settings.load({**GOOD, **changes})
    assert SECRET not in caught.value.message
