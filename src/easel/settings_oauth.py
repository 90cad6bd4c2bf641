"""The settings of OAuth providers: a family, EASEL_OAUTH_<NAME>_<PART>, of which each NAME describes one.

Owns the parts and their checks. No message contains the value of a secret.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from easel.core.model.settings import check_base_url
from easel.core.oauth.flow import is_loopback
from easel.core.oauth.provider import OAuthProvider
from easel.errors import BadInput, BadSettings

FAMILY = "EASEL_OAUTH_<NAME>_"
_PREFIX = "EASEL_OAUTH_"


@dataclass(frozen=True, slots=True)
class FamilyPart:
    description: str
    secret: bool = False


PARTS: Mapping[str, FamilyPart] = {
    "CLIENT_ID": FamilyPart(
        "The id of Easel's client at the OAuth provider NAME; a person can connect it then."
    ),
    "CLIENT_SECRET": FamilyPart("The secret of this client; empty: a public client.", secret=True),
    "AUTHORIZE_URL": FamilyPart("Where the provider asks the person; for OPENAI empty: OpenAI's own."),
    "TOKEN_URL": FamilyPart("Where the provider gives and refreshes tokens; for OPENAI empty: OpenAI's own."),
    "SCOPES": FamilyPart("The scopes to ask for, separated by spaces."),
    "ISSUER": FamilyPart(
        "The `iss` of its callbacks; empty: none, or one at the origin of the AUTHORIZE_URL."
    ),
    "BASE_URL": FamilyPart(
        "The `base_url` of the models that take its tokens; empty: if NAME is OPENAI, GEMINI or ANTHROPIC, "
        "their own."
    ),
}
# Where a provider publishes its addresses, the name is enough.
KNOWN_ADDRESSES: Mapping[str, Mapping[str, str]] = {
    "openai": {
        "AUTHORIZE_URL": "https://auth.openai.com/oauth/authorize",
        "TOKEN_URL": "https://auth.openai.com/oauth/token",
    },
}
_VARIABLE = re.compile(rf"{_PREFIX}([A-Z0-9](?:[A-Z0-9_]{{0,30}}[A-Z0-9])?)_({'|'.join(PARTS)})")


def is_of_family(variable: str) -> bool:
    return _VARIABLE.fullmatch(variable) is not None


def read_providers(environment: Mapping[str, str], *, is_prod: bool) -> tuple[OAuthProvider, ...]:
    """Return the providers that the environment describes, by name. Raises `BadSettings`."""
    found: dict[str, dict[str, str]] = {}
    for variable, text in environment.items():
        if (match := _VARIABLE.fullmatch(variable)) and text.strip():
            found.setdefault(match[1], {})[match[2]] = text.strip()
    return tuple(_provider(name, parts, is_prod=is_prod) for name, parts in sorted(found.items()))


def check_profile(providers: tuple[OAuthProvider, ...], public_url: str, *, is_prod: bool) -> None:
    """Raise `BadSettings` if providers cannot call back this server in the profile prod. RX-43"""
    if not providers or not is_prod or public_url.startswith("https://"):
        return
    problem = "is not an https address" if public_url else "is not set"
    raise BadSettings(
        problem=f"EASEL_PUBLIC_URL {problem}: in the profile prod the provider {providers[0].name} must call "
        "back https://…, so set it to the public address of Easel, or remove the settings EASEL_OAUTH_…."
    )


def _provider(name: str, parts: Mapping[str, str], *, is_prod: bool) -> OAuthProvider:
    variable, lower = f"{_PREFIX}{name}_", name.lower().replace("_", "-")
    parts = {**KNOWN_ADDRESSES.get(lower, {}), **parts}
    for part in ("CLIENT_ID", "AUTHORIZE_URL", "TOKEN_URL"):
        if part not in parts:
            raise BadSettings(problem=f"{variable}{part} must be set too, to describe the provider {name}.")
    for part in ("AUTHORIZE_URL", "TOKEN_URL"):
        _check_url(f"{variable}{part}", parts[part], is_prod=is_prod)
    try:
        base_url = check_base_url(parts["BASE_URL"], f"{variable}BASE_URL") if "BASE_URL" in parts else ""
    except BadInput as problem:
        raise BadSettings(problem=problem.message) from None
    return OAuthProvider(
        name=lower,
        client_id=parts["CLIENT_ID"],
        client_secret=parts.get("CLIENT_SECRET", ""),
        authorize_url=parts["AUTHORIZE_URL"],
        token_url=parts["TOKEN_URL"],
        scopes=" ".join(parts.get("SCOPES", "").split()),
        issuer=parts.get("ISSUER", ""),
        base_url=base_url,
    )


def _check_url(variable: str, url: str, *, is_prod: bool) -> None:
    """Raise `BadSettings` unless secrets may be sent there: by https, or on loopback while developing."""
    try:
        parts = urlsplit(url)
        host, is_plain = parts.hostname or "", parts.username is None and not parts.fragment
    except ValueError:
        host, is_plain, parts = "", False, urlsplit("")
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host) and not is_prod)
    if not host or not is_plain or not is_safe:
        loopback = "" if is_prod else ", or an http address on this machine"
        raise BadSettings(problem=f"{variable} must be an https address without a password{loopback}.")


def refuse_without_key(providers: Sequence[OAuthProvider]) -> None:
    """Raise `BadSettings` if a provider is described: its tokens could not be encrypted for all instances."""
    if providers:
        raise BadSettings(
            problem="EASEL_SECRET_KEY must be set, to the same value on every instance: it encrypts the "
            f"tokens of the OAuth provider {providers[0].name}."
        )
