"""A real OpenID provider on loopback: npm's oidc-provider in `tests/oidc/`, with a browser that uses it.

Owns the process, its configuration and its counts of token requests. A test that uses it is marked `oidc`.
"""

from __future__ import annotations

import importlib
import json
import ssl
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import httpx2

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLIENT_ID = "easel"
CLIENT_SECRET = "client-secret-of-easel-in-tests"
ANSWER_SECONDS = 30.0
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # making one with certificates takes 20 ms per client


@dataclass(frozen=True)
class TokenCounts:
    """Counts of the token endpoint: requests that arrived, and answers by their grant."""

    requests: int
    code: int
    refresh: int
    failed: int


@dataclass
class OidcProvider:
    """`with OidcProvider(redirects) as provider:` serves `provider.issuer` to one client."""

    redirects: Sequence[str]
    """The exact addresses that the client may be called back at."""
    people: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Any])
    """Claims of persons by their subject. Everybody may sign in, by `login_hint`, else as `alice`."""
    access_seconds: int = 3600
    rotates: bool = True
    """A refresh token is valid once, and its second use revokes all tokens of its grant."""
    client: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further members of the client, such as post_logout_redirect_uris."""
    issuer: str = ""
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> OidcProvider:
        client = {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "redirect_uris": list(self.redirects),
            **self.client,
        }
        config = {
            "clients": [client],
            "people": self.people,
            "access_seconds": self.access_seconds,
            "rotate": self.rotates,
        }
        # It ends when its input is closed, also by the kernel, if this process is killed.
        self._process = process = subprocess.Popen(
            [_find_node(), "server.js"],
            cwd=ROOT / "tests" / "oidc",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(config) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise AssertionError("the OpenID provider did not start; its output says why")
        self.issuer = json.loads(line)["issuer"]
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate(timeout=ANSWER_SECONDS)

    @property
    def authorize_url(self) -> str:
        return f"{self.issuer}/auth"

    @property
    def token_url(self) -> str:
        return f"{self.issuer}/token"

    def easel_settings(self, name: str, scopes: str = "models") -> dict[str, str]:
        """Return the settings of Easel, without EASEL_, that describe this provider as `name`."""
        return {
            f"OAUTH_{name.upper()}_{part}": value
            for part, value in {
                "CLIENT_ID": CLIENT_ID,
                "CLIENT_SECRET": CLIENT_SECRET,
                "AUTHORIZE_URL": self.authorize_url,
                "TOKEN_URL": self.token_url,
                "SCOPES": scopes,
            }.items()
        }

    def sign_in_settings(self, **changes: str) -> dict[str, str]:
        """Return the settings of Easel, without EASEL_, with which people sign in at this provider."""
        client = {"ISSUER": self.issuer, "CLIENT_ID": CLIENT_ID, "CLIENT_SECRET": CLIENT_SECRET}
        return {f"OIDC_{part}": value for part, value in {**client, **changes}.items()}

    # -- control

    @property
    def counts(self) -> TokenCounts:
        return self._control()

    def hold(self, where: Literal["before", "after"]) -> None:
        """Let token requests wait: before they are processed, or their answers before they are sent."""
        self._control(hold=where)

    def release(self) -> None:
        self._control(hold="")

    def revoke_all(self) -> None:
        """Revoke all access and refresh tokens."""
        self._control(revoke=True)

    def rotate_keys(self) -> None:
        """Replace the key that signs ID tokens."""
        self._control(rotate_keys=True)

    def change_person(self, subject: str, **claims: Any) -> None:
        self._control(people={subject: claims})

    def _control(self, **change: Any) -> TokenCounts:
        answer = httpx2.post(f"{self.issuer}/control", json=change, timeout=ANSWER_SECONDS, verify=NO_TLS)
        return TokenCounts(**answer.raise_for_status().json())


async def approve(
    authorize_url: str, *, as_person: str = "", client: httpx2.AsyncClient | None = None
) -> str:
    """Sign in at the provider and consent, as a browser does. Returns the address of the callback.

    Without `client` the browser is a fresh one, without a sign-in.
    """
    if client is None:
        async with httpx2.AsyncClient(timeout=ANSWER_SECONDS, verify=NO_TLS) as fresh:
            return await approve(authorize_url, as_person=as_person, client=fresh)
    address = f"{authorize_url}&login_hint={as_person}" if as_person else authorize_url
    origin = httpx2.URL(authorize_url).netloc
    for _ in range(6):
        answer = await client.get(address)
        if not answer.is_redirect:
            raise AssertionError(f"{answer.status_code} from {address}: {answer.text[:1000]}")
        address = str(answer.url.join(answer.headers["location"]))
        if httpx2.URL(address).netloc != origin:
            return address
    raise AssertionError(f"too many redirects, the last one to {address}")


def _find_node() -> str:
    """Return Node, as `scripts/prepare.py` finds it."""
    scripts = str(ROOT / "scripts")
    sys.path.insert(0, scripts)
    try:
        node = importlib.import_module("prepare").find_node()
    finally:
        sys.path.remove(scripts)
    assert node is not None, "Node 22 or newer is missing: run `python3 scripts/prepare.py test`"
    return node
