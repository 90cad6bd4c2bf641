"""The provider of OpenID Connect of this host, and who may sign in the first time.

Owns the list of allowed e-mail addresses and domains. With an empty list only invited
persons sign in. Does not know where the description comes from.
"""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_ADDRESS = re.compile(r'[^@\s",;<>]{1,64}@[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?')


@dataclass(frozen=True, slots=True)
class Allowed:
    """Addresses, and domains of addresses, both in lower case."""

    addresses: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()

    def allows(self, email: str | None) -> bool:
        """Return whether a person with this address may sign in the first time."""
        if email is None or not is_address(email):
            return False
        return email in self.addresses or email.rpartition("@")[2] in self.domains


@dataclass(frozen=True, slots=True)
class OpenIdProvider:
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)  # empty: a public client, which PKCE alone protects
    allowed: Allowed = Allowed()
    teams_claim: str = ""  # empty: teams do not come from the provider

    @property
    def name(self) -> str:
        """Return what the button and the messages call it: the host name of its issuer."""
        return urlsplit(self.issuer).hostname or self.issuer


def is_address(email: str) -> bool:
    """Return whether this is one plain ASCII address in lower case."""
    return email.isascii() and _ADDRESS.fullmatch(email) is not None


def parse_allowed(text: str) -> Allowed:
    """Return what a list like `@example.com,ada@example.org` allows. Raises `ValueError` with the entry."""
    entries = {entry.strip().lower() for entry in text.split(",")} - {""}
    for entry in entries:
        if not is_address(f"x{entry}" if entry.startswith("@") else entry):
            raise ValueError(entry)
    domains = {entry for entry in entries if entry.startswith("@")}
    return Allowed(frozenset(entries - domains), frozenset(domain[1:] for domain in domains))
