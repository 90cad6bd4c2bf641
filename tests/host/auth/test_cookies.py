"""The cookie of a browser: valid for the token it was issued for, until it expires."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.assembly.storage import derive_key
from easel.core.token import TokenKind
from easel.host.auth.cookies import COOKIE_SECONDS
from easel.host.auth.tokens import Tokens
from tests.host.auth.signing_in import KEY, NOW, TOKEN, SigningIn
from tests.requirements import case
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.host.conftest import RunHarness


@pytest.fixture
def signing_in(harness: RunHarness) -> SigningIn:
    return SigningIn(harness)


async def test_cookie_authenticates_the_owner_until_it_expires(signing_in: SigningIn) -> None:
    cookies = signing_in.cookies
    cookie = cookies.issue(NOW, await signing_in.by_token())
    principal = await cookies.check(cookie, NOW + COOKIE_SECONDS - 1)
    assert principal is not None
    assert replace(principal, sign_in_id=None) == THE_OWNER
    assert await cookies.check(cookie, NOW + COOKIE_SECONDS) is None
    assert TOKEN not in cookie


@case("O9")
@pytest.mark.parametrize("token, key", [("a new token", KEY), (TOKEN, "x" * 43)])
async def test_new_owner_token_or_another_key_invalidates_all_cookies(
    harness: RunHarness, signing_in: SigningIn, token: str, key: str
) -> None:
    """So nobody who guesses the owner's token can check the guess with a cookie or a view token."""
    _, secret = await Tokens(harness.database.tokens, harness.audit).create("owner", TokenKind.USER)
    other = SigningIn(harness, token, key=key)
    for principal in (THE_OWNER, await signing_in.by_token(secret)):
        assert await other.cookies.check(signing_in.cookies.issue(NOW, principal), NOW) is None


CHANGES: list[Callable[[str], str]] = [
    lambda cookie: "9" + cookie,
    lambda cookie: cookie[:-1],
    lambda cookie: cookie + "0",
    lambda _: "",
    lambda _: ".",
    lambda _: "x.y",
    lambda cookie: cookie.replace(".", ""),
    lambda cookie: cookie.replace(".", ".tok_x."),
]


@pytest.mark.parametrize("change", CHANGES)
async def test_changed_cookie_is_refused(signing_in: SigningIn, change: Callable[[str], str]) -> None:
    cookies = signing_in.cookies
    assert await cookies.check(change(cookies.issue(NOW, THE_OWNER)), NOW) is None


@pytest.mark.parametrize("kind", [TokenKind.NODE, TokenKind.SERVICE])
async def test_cookie_is_issued_to_persons_only(
    harness: RunHarness, signing_in: SigningIn, kind: TokenKind
) -> None:
    _, secret = await Tokens(harness.database.tokens, harness.audit).create("owner", kind)
    principal = await signing_in.by_token(secret)
    with pytest.raises(AssertionError):
        signing_in.cookies.issue(NOW, principal)


def test_derived_key_depends_on_purpose_owner_token_and_secret_key() -> None:
    ways = [(KEY, TOKEN, "views"), (KEY, TOKEN, "other"), (KEY, "new", "views"), ("x" * 43, TOKEN, "views")]
    assert derive_key(*ways[0]) == derive_key(*ways[0])
    assert len({derive_key(*way) for way in ways}) == 4
