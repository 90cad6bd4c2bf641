"""The cookie of a browser: valid for one sign-in, until that ends or expires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easel.assembly.storage import derive_key
from easel.core.principal import Role
from easel.core.token import TokenKind
from easel.host.auth.tokens import Tokens
from easel.ids import OWNER, AccountId, UserId
from tests.host.auth.signing_in import KEY, TOKEN, SigningIn
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.host.conftest import RunHarness

ME = UserId(OWNER)


@pytest.fixture
def signing_in(harness: RunHarness) -> SigningIn:
    return SigningIn(harness, recheck_seconds=0.0)


async def test_cookie_authenticates_a_person_until_it_expires(
    signing_in: SigningIn, harness: RunHarness
) -> None:
    cookie = await signing_in.cookies.issue(ME)
    principal = await signing_in.by_cookie(cookie)
    assert (principal.user_id, principal.account_id, principal.role) == (ME, OWNER, Role.ADMIN)
    assert principal.is_operator
    await harness.sql("update sign_ins set expires_at = 1")
    assert await signing_in.cookies.check(cookie) is None
    renewed = await signing_in.by_cookie(await signing_in.cookies.issue(ME))
    assert renewed.sign_in_id != principal.sign_in_id


@rule("RS-76")
async def test_cookie_has_the_role_of_the_person_in_the_named_account(
    signing_in: SigningIn, harness: RunHarness
) -> None:
    await harness.sql("insert into accounts (account_id, kind) values ('devs', 'team'), ('ops', 'team')")
    await harness.sql(
        "insert into team_members (account_id, user_id, role) values ('devs', 'owner', 'viewer')"
    )
    cookie = await signing_in.cookies.issue(ME)
    principal = await signing_in.cookies.check(cookie, AccountId("devs"))
    assert principal is not None
    assert (principal.user_id, principal.account_id, principal.role) == (ME, "devs", Role.VIEWER)
    for missing in ("ops", "nobody"):
        assert await signing_in.cookies.check(cookie, AccountId(missing)) is None
    await harness.sql("update accounts set disabled_at = 1 where account_id = 'devs'")
    assert await signing_in.cookies.check(cookie, AccountId("devs")) is None


@case("O9")
@pytest.mark.parametrize("token, key", [("a new token", KEY), (TOKEN, "x" * 43)])
async def test_new_owner_token_or_another_key_invalidates_all_cookies(
    harness: RunHarness, signing_in: SigningIn, token: str, key: str
) -> None:
    """A guess of the owner's token must not be confirmed by a cookie or a view token."""
    made, _ = await Tokens(harness.database.tokens, harness.audit).create("owner", TokenKind.USER)
    other = SigningIn(harness, token, key=key)
    for token_id in (None, made.token_id):
        assert await other.cookies.check(await signing_in.cookies.issue(ME, token_id=token_id)) is None


CHANGES: list[Callable[[str], str]] = [
    lambda cookie: "9" + cookie,
    lambda cookie: cookie[:-1],
    lambda cookie: cookie + "0",
    lambda _: "",
    lambda _: ".",
    lambda _: "x.y",
    lambda cookie: cookie.replace(".", ""),
    lambda cookie: cookie.replace(".", ".tok_x."),
    lambda cookie: cookie.replace("sign_", "sign_0", 1),
]


@pytest.mark.parametrize("change", CHANGES)
async def test_changed_cookie_is_refused(signing_in: SigningIn, change: Callable[[str], str]) -> None:
    assert await signing_in.cookies.check(change(await signing_in.cookies.issue(ME))) is None


def test_derived_key_depends_on_purpose_owner_token_and_secret_key() -> None:
    ways = [(KEY, TOKEN, "views"), (KEY, TOKEN, "other"), (KEY, "new", "views"), ("x" * 43, TOKEN, "views")]
    assert derive_key(*ways[0]) == derive_key(*ways[0])
    assert len({derive_key(*way) for way in ways}) == 4
