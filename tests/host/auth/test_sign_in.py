"""Authentication by the owner's token, by the tokens of others, and by cookie."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.principal import THE_OWNER, PrincipalKind, Scope
from easel.core.token import TokenKind
from easel.errors import BadInput, NotFound, NotSignedIn, TooManyFailures
from easel.host.auth.sign_in import COOKIE_SECONDS, SignIn
from easel.host.auth.throttle import SignInThrottle
from easel.host.auth.tokens import Tokens
from tests.requirements import case
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.host.conftest import RunHarness

NOW = 1_800_000_000.0
KEY = "k" * 43
OWNER_ONLY = SignIn("the right token", key=KEY)


@pytest.fixture
def sign_in(harness: RunHarness) -> SignIn:
    return SignIn("the right token", harness.database.tokens, key=KEY, recheck_seconds=0.01)


@pytest.fixture
def tokens(harness: RunHarness) -> Tokens:
    return Tokens(harness.database.tokens, harness.audit)


# --- the owner ----------------------------------------------------------------------------------------------


async def test_only_the_exact_owner_token_is_accepted() -> None:
    assert await OWNER_ONLY.authenticate_token("the right token") is THE_OWNER
    for wrong in (
        "",
        "the right toke",
        "the right token ",
        "THE RIGHT TOKEN",
        "\ud800",
        "the right token\x00",
    ):
        assert await OWNER_ONLY.authenticate_token(wrong) is None


async def test_cookie_authenticates_the_owner_until_it_expires() -> None:
    cookie = OWNER_ONLY.new_cookie(NOW)
    principal = await OWNER_ONLY.authenticate_cookie(cookie, NOW + COOKIE_SECONDS - 1)
    assert principal is not None
    assert replace(principal, sign_in_id=None) == THE_OWNER
    assert await OWNER_ONLY.authenticate_cookie(cookie, NOW + COOKIE_SECONDS) is None
    assert "the right token" not in cookie


@case("O9")
async def test_new_owner_token_invalidates_all_cookies() -> None:
    assert await SignIn("a new token", key=KEY).authenticate_cookie(OWNER_ONLY.new_cookie(NOW), NOW) is None


@case("O9")
async def test_cookie_of_another_key_is_refused() -> None:
    """So nobody who guesses the owner's token can check the guess with a cookie or a view token."""
    other = SignIn("the right token", key="x" * 43)
    assert await other.authenticate_cookie(OWNER_ONLY.new_cookie(NOW), NOW) is None


async def test_wrong_tokens_slow_sign_in_down_unless_the_token_cannot_be_guessed(
    harness: RunHarness, tokens: Tokens
) -> None:
    _, secret = await tokens.create("owner", TokenKind.SERVICE)
    for owner_token, is_refused in (("a short token 16", True), ("a token of 24 characters", False)):
        throttle = SignInThrottle(2, lambda: 0.0)
        sign_in = SignIn(owner_token, harness.database.tokens, key=KEY, throttle=throttle)
        for _ in range(2):
            assert await sign_in.authenticate_token("wrong", "10.0.0.1") is None
        with pytest.raises(TooManyFailures):
            await sign_in.authenticate_token("wrong", "10.0.0.1")
        with pytest.raises(TooManyFailures):
            await sign_in.authenticate_token(f"easel_{'x' * 43}", "10.0.0.1")
        assert await sign_in.authenticate_token(secret, "10.0.0.1"), "256 random bits"
        assert await sign_in.authenticate_token(owner_token, "10.0.0.2"), "another address"
        if is_refused:
            with pytest.raises(TooManyFailures):
                await sign_in.authenticate_token(owner_token, "10.0.0.1")
        else:
            assert await sign_in.authenticate_token(owner_token, "10.0.0.1")


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
async def test_changed_cookie_is_refused(change: Callable[[str], str]) -> None:
    assert await OWNER_ONLY.authenticate_cookie(change(OWNER_ONLY.new_cookie(NOW)), NOW) is None


async def test_derived_key_depends_on_purpose_owner_token_and_secret_key() -> None:
    assert OWNER_ONLY.derive_key("views") == SignIn("the right token", key=KEY).derive_key("views")
    assert (
        len(
            {
                OWNER_ONLY.derive_key("views"),
                OWNER_ONLY.derive_key("other"),
                SignIn("a new token", key=KEY).derive_key("views"),
                SignIn("the right token", key="x" * 43).derive_key("views"),
            }
        )
        == 4
    )


# --- others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(TokenKind))
async def test_token_authenticates_the_principal_it_was_created_for(
    sign_in: SignIn, tokens: Tokens, kind: TokenKind
) -> None:
    made, secret = await tokens.create("owner", kind, name="mine")
    principal = await sign_in.authenticate_token(secret)
    assert principal is not None
    assert (principal.account_id, principal.name, principal.kind, principal.token_id) == (
        "owner",
        "mine",
        PrincipalKind(kind.value),
        made.token_id,
    )
    assert principal.scopes == (frozenset(Scope) if kind is TokenKind.USER else frozenset()), (
        "only a person administers"
    )
    for wrong in (secret[:-1], secret + "x", secret.upper(), made.token_id):
        assert await sign_in.authenticate_token(wrong) is None
    assert await SignIn("the right token", key=KEY).authenticate_token(secret) is None


async def test_token_of_another_user_has_no_scopes(
    sign_in: SignIn, tokens: Tokens, harness: RunHarness
) -> None:
    await harness.database.write(
        lambda connection: (
            connection.execute(
                "insert into accounts (account_id, kind, name) values ('mallory', 'person', 'mallory')"
            )
            and None
        )
    )
    _, secret = await tokens.create("mallory", TokenKind.USER)
    principal = await sign_in.authenticate_token(secret)
    assert principal is not None
    assert (principal.account_id, principal.scopes) == ("mallory", frozenset())


@case("O9")
async def test_revoked_token_is_refused_on_every_instance(harness: RunHarness, tokens: Tokens) -> None:
    instances = [
        SignIn("the right token", harness.database.tokens, key=KEY, recheck_seconds=0.0) for _ in range(2)
    ]
    made, secret = await tokens.create("owner", TokenKind.USER)
    assert all([await sign_in.authenticate_token(secret) for sign_in in instances])
    cookies = [
        sign_in.new_cookie(NOW, principal)
        for sign_in in instances
        if (principal := await sign_in.authenticate_token(secret))
    ]
    assert [
        (await instances[0].authenticate_cookie(cookie, NOW) or THE_OWNER).token_id for cookie in cookies
    ] == [made.token_id] * 2
    await tokens.revoke(made.token_id)
    for sign_in in instances:
        assert await sign_in.authenticate_token(secret) is None
        assert [await sign_in.authenticate_cookie(cookie, NOW) for cookie in cookies] == [None, None]
    with pytest.raises(NotFound):
        await tokens.revoke(made.token_id)


async def test_token_is_cached_for_the_recheck_time_only(
    sign_in: SignIn, tokens: Tokens, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_count = 0
    find_by_digest = harness.database.tokens.find_by_digest

    async def counted(digest: str) -> Any:
        nonlocal query_count
        query_count += 1
        return await find_by_digest(digest)

    monkeypatch.setattr(harness.database.tokens, "find_by_digest", counted)
    sign_in.recheck_seconds = 3600.0
    _, secret = await tokens.create("owner", TokenKind.USER)
    for _ in range(20):
        assert await sign_in.authenticate_token(secret)
    assert query_count == 1
    for wrong in ("", "wrong", "easel_short", "x" * 49):
        assert await sign_in.authenticate_token(wrong) is None
    assert query_count == 1, "text that is not a token needs no query"
    sign_in.recheck_seconds = 0.0
    assert await sign_in.authenticate_token(secret)
    assert query_count == 2


@pytest.mark.parametrize("kind", [TokenKind.NODE, TokenKind.SERVICE])
async def test_cookie_is_issued_to_persons_only(sign_in: SignIn, tokens: Tokens, kind: TokenKind) -> None:
    _, secret = await tokens.create("owner", kind)
    principal = await sign_in.authenticate_token(secret)
    assert principal is not None
    with pytest.raises(AssertionError):
        sign_in.new_cookie(NOW, principal)


@case("O9")
async def test_revoking_a_token_closes_what_it_opened_and_nothing_else(
    sign_in: SignIn, tokens: Tokens
) -> None:
    made, secret = await tokens.create("owner", TokenKind.USER)
    _, other = await tokens.create("owner", TokenKind.USER)
    all_open = asyncio.Barrier(4)

    async def hold_open(token: str) -> None:
        principal = await sign_in.authenticate_token(token)
        assert principal is not None
        async with sign_in.while_valid(principal):
            await all_open.wait()
            await asyncio.Event().wait()

    held, of_other, of_owner = (
        asyncio.create_task(hold_open(token)) for token in (secret, other, "the right token")
    )
    await within_timeout(all_open.wait())
    await tokens.revoke(made.token_id)
    with pytest.raises(NotSignedIn):
        await asyncio.wait_for(held, TIMEOUT_SECONDS)
    assert not of_other.done()
    assert not of_owner.done()
    for task in (of_other, of_owner):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await sign_in.close()


async def test_timeout_inside_the_block_is_not_reported_as_a_revoked_token(
    sign_in: SignIn, tokens: Tokens
) -> None:
    _, secret = await tokens.create("owner", TokenKind.USER)
    principal = await sign_in.authenticate_token(secret)
    assert principal is not None
    with pytest.raises(TimeoutError):
        async with sign_in.while_valid(principal), asyncio.timeout(0.01):
            await asyncio.Event().wait()
    await sign_in.close()


# --- creating tokens ----------------------------------------------------------------------------------------

REFUSALS: list[tuple[str, tuple[str, str], dict[str, Any], type[Exception]]] = [
    ("no such kind", ("owner", "king"), {}, BadInput),
    ("no such user", ("nobody", TokenKind.USER), {}, NotFound),
    ("an empty name", ("owner", TokenKind.USER), {"name": ""}, BadInput),
    ("a name of two lines", ("owner", TokenKind.USER), {"name": "a\nb"}, BadInput),
    ("a long name", ("owner", TokenKind.USER), {"name": "x" * 101}, BadInput),
    ("a node for a person", ("owner", TokenKind.USER), {"node_id": "laptop"}, BadInput),
    ("a node for a service", ("owner", TokenKind.SERVICE), {"node_id": "laptop"}, BadInput),
    ("a reserved node", ("owner", TokenKind.NODE), {"node_id": "gsv"}, BadInput),
    ("a node's id that is none", ("owner", TokenKind.NODE), {"node_id": "a__b"}, BadInput),
]


@pytest.mark.parametrize("name, positional, options, error", REFUSALS, ids=[row[0] for row in REFUSALS])
async def test_invalid_token_is_not_created(
    tokens: Tokens, name: str, positional: tuple[str, str], options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await tokens.create(*positional, **options)
    assert await tokens.list_tokens() == []


@case("P6")
async def test_token_and_cookie_are_redacted_from_messages(
    sign_in: SignIn, tokens: Tokens, harness: RunHarness
) -> None:
    _, secret = await tokens.create("owner", "user")
    principal = await sign_in.authenticate_token(secret)
    assert principal is not None
    for quoted in (secret, sign_in.new_cookie(NOW, principal), sign_in.new_cookie(NOW)):
        assert quoted not in harness.audit.redact(f"could not parse {quoted} here")


async def test_creating_and_revoking_a_token_is_audited_without_the_token(
    tokens: Tokens, harness: RunHarness
) -> None:
    made, secret = await tokens.create("owner", TokenKind.NODE, node_id="laptop")
    await tokens.revoke(made.token_id)
    records = await harness.database.audit.list_records(
        action=None, storage_class=None, since=None, until=None, before=None, limit=10
    )
    assert [link.action for link in records] == ["token.revoked", "token.created"]
    for link in records:
        assert made.token_id in link.record
        assert secret not in link.record
        assert secret.removeprefix("easel_") not in link.record
