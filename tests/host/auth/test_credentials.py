"""Credentials: the owner's token, the tokens of others, and tokens of disabled accounts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.principal import PrincipalKind, Role
from easel.core.token import TokenKind
from easel.errors import BadInput, NotFound, NotSignedIn, TooManyFailures, Unavailable
from easel.host.auth.throttle import SignInThrottle
from easel.host.auth.tokens import Tokens
from easel.ids import OWNER, UserId
from tests.host.auth.signing_in import TOKEN, SigningIn
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from tests.host.conftest import RunHarness


@pytest.fixture
def signing_in(harness: RunHarness) -> SigningIn:
    return SigningIn(harness)


@pytest.fixture
def tokens(harness: RunHarness) -> Tokens:
    return Tokens(harness.database.tokens, harness.audit)


# --- the owner ----------------------------------------------------------------------------------------------


async def test_only_the_exact_owner_token_is_accepted(signing_in: SigningIn) -> None:
    assert await signing_in.credentials.authenticate(TOKEN) == THE_OWNER
    for wrong in (
        "",
        "the right toke",
        "the right token ",
        "THE RIGHT TOKEN",
        "\ud800",
        "the right token\x00",
    ):
        assert await signing_in.credentials.authenticate(wrong) is None


async def test_wrong_tokens_slow_sign_in_down_unless_the_token_cannot_be_guessed(
    harness: RunHarness, tokens: Tokens
) -> None:
    _, secret = await tokens.create("owner", TokenKind.SERVICE)
    for owner_token, is_refused in (("a short token 16", True), ("a token of 24 characters", False)):
        throttle = SignInThrottle(2, lambda: 0.0)
        credentials = SigningIn(harness, owner_token, throttle=throttle).credentials
        for _ in range(2):
            assert await credentials.authenticate("wrong", "10.0.0.1") is None
        with pytest.raises(TooManyFailures):
            await credentials.authenticate("wrong", "10.0.0.1")
        with pytest.raises(TooManyFailures):
            await credentials.authenticate(f"easel_{'x' * 43}", "10.0.0.1")
        assert await credentials.authenticate(secret, "10.0.0.1"), "256 random bits"
        assert await credentials.authenticate(owner_token, "10.0.0.2"), "another address"
        if is_refused:
            with pytest.raises(TooManyFailures):
                await credentials.authenticate(owner_token, "10.0.0.1")
        else:
            assert await credentials.authenticate(owner_token, "10.0.0.1")


# --- others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(TokenKind))
async def test_token_authenticates_the_principal_it_was_created_for(
    signing_in: SigningIn, tokens: Tokens, kind: TokenKind
) -> None:
    made, secret = await tokens.create("owner", kind, name="mine")
    principal = await signing_in.credentials.authenticate(secret)
    assert principal is not None
    assert (principal.account_id, principal.name, principal.kind, principal.token_id) == (
        "owner",
        "mine",
        PrincipalKind(kind.value),
        made.token_id,
    )
    assert principal.is_operator == (kind is TokenKind.USER), "only a person is an operator"
    assert principal.role is (Role.VIEWER if kind is TokenKind.NODE else Role.ADMIN)
    for wrong in (secret[:-1], secret + "x", secret.upper(), made.token_id):
        assert await signing_in.credentials.authenticate(wrong) is None


@rule("RS-76")
async def test_only_the_operator_in_person_administers(
    signing_in: SigningIn, tokens: Tokens, harness: RunHarness
) -> None:
    await harness.sql("insert into accounts (account_id) values ('ada')")
    await harness.sql("insert into people (user_id) values ('ada')")
    _, secret = await tokens.create("ada", TokenKind.USER)
    ada = await signing_in.by_token(secret)
    assert (ada.account_id, ada.user_id, ada.role, ada.is_operator) == ("ada", "ada", Role.ADMIN, False)
    await harness.sql("update people set is_operator = (user_id = 'ada')")
    instance = SigningIn(harness)
    assert (await instance.by_token(secret)).is_operator
    assert not (await instance.by_token()).is_operator, "the owner's token has no rights of its own"


@rule("RS-76")
async def test_token_of_a_disabled_account_is_refused(
    harness: RunHarness, signing_in: SigningIn, tokens: Tokens
) -> None:
    _, secret = await tokens.create("owner", TokenKind.SERVICE)
    cookie = await signing_in.cookies.issue(UserId(OWNER))
    await harness.sql("update accounts set disabled_at = 1")
    instance = SigningIn(harness)
    assert [await instance.credentials.authenticate(token) for token in (secret, TOKEN)] == [None, None]
    assert await instance.cookies.check(cookie) is None
    await harness.sql("update accounts set disabled_at = null")
    assert await SigningIn(harness).cookies.check(cookie) is not None


@rule("RS-76")
@pytest.mark.parametrize("kind", ["known", "stored"])
async def test_disabling_an_account_closes_what_its_tokens_opened(
    harness: RunHarness, signing_in: SigningIn, tokens: Tokens, kind: str
) -> None:
    secret = TOKEN if kind == "known" else (await tokens.create("owner", TokenKind.SERVICE))[1]
    principal = await signing_in.by_token(secret)
    is_closed = asyncio.Event()
    signing_in.revocation.watch(principal, is_closed.set)
    await harness.sql("update accounts set disabled_at = 1")
    await within_timeout(is_closed.wait())
    await signing_in.revocation.close()


async def test_token_that_was_found_valid_stays_so_while_the_database_is_unavailable(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = SigningIn(harness, recheck_seconds=0.0).credentials
    assert await credentials.authenticate(TOKEN) == THE_OWNER

    async def fail(_: str) -> Any:
        raise Unavailable(what="The database")

    monkeypatch.setattr(harness.database.accounts, "find_person", fail)
    assert await credentials.authenticate(TOKEN) == THE_OWNER
    with pytest.raises(Unavailable):
        await SigningIn(harness).credentials.authenticate(TOKEN)


@case("O9")
async def test_revoked_token_is_refused_on_every_instance(harness: RunHarness, tokens: Tokens) -> None:
    instances = [SigningIn(harness, recheck_seconds=0.0) for _ in range(2)]
    made, secret = await tokens.create("owner", TokenKind.USER)
    assert all([await signing_in.credentials.authenticate(secret) for signing_in in instances])
    cookies = [
        await signing_in.cookies.issue(UserId(OWNER), token_id=made.token_id) for signing_in in instances
    ]
    assert all([await instances[0].cookies.check(cookie) for cookie in cookies])
    await tokens.revoke(made.token_id)
    for signing_in in instances:
        assert await signing_in.credentials.authenticate(secret) is None
        assert [await signing_in.cookies.check(cookie) for cookie in cookies] == [None, None]
    with pytest.raises(NotFound):
        await tokens.revoke(made.token_id)


async def test_token_is_cached_for_the_recheck_time_only(
    signing_in: SigningIn, tokens: Tokens, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_count = 0
    find_by_digest = harness.database.tokens.find_by_digest

    async def counted(digest: str) -> Any:
        nonlocal query_count
        query_count += 1
        return await find_by_digest(digest)

    monkeypatch.setattr(harness.database.tokens, "find_by_digest", counted)
    signing_in.credentials.recheck_seconds = 3600.0
    _, secret = await tokens.create("owner", TokenKind.USER)
    for _ in range(20):
        assert await signing_in.credentials.authenticate(secret)
    assert query_count == 1
    for wrong in ("", "wrong", "easel_short", "x" * 49):
        assert await signing_in.credentials.authenticate(wrong) is None
    assert query_count == 1, "text that is not a token needs no query"
    signing_in.credentials.recheck_seconds = 0.0
    assert await signing_in.credentials.authenticate(secret)
    assert query_count == 2


@case("O9")
async def test_revoking_a_token_closes_what_it_opened_and_nothing_else(
    signing_in: SigningIn, tokens: Tokens
) -> None:
    made, secret = await tokens.create("owner", TokenKind.USER)
    _, other = await tokens.create("owner", TokenKind.USER)
    all_open = asyncio.Barrier(4)

    async def hold_open(token: str) -> None:
        principal = await signing_in.credentials.authenticate(token)
        assert principal is not None
        async with signing_in.revocation.while_valid(principal):
            await all_open.wait()
            await asyncio.Event().wait()

    held, of_other, of_owner = (asyncio.create_task(hold_open(token)) for token in (secret, other, TOKEN))
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
    await signing_in.revocation.close()


async def test_timeout_inside_the_block_is_not_reported_as_a_revoked_token(
    signing_in: SigningIn, tokens: Tokens
) -> None:
    _, secret = await tokens.create("owner", TokenKind.USER)
    principal = await signing_in.credentials.authenticate(secret)
    assert principal is not None
    with pytest.raises(TimeoutError):
        async with signing_in.revocation.while_valid(principal), asyncio.timeout(0.01):
            await asyncio.Event().wait()
    await signing_in.revocation.close()


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
    signing_in: SigningIn, tokens: Tokens, harness: RunHarness
) -> None:
    _, secret = await tokens.create("owner", "user")
    for quoted in (secret, await signing_in.cookies.issue(UserId(OWNER))):
        assert quoted not in harness.audit.redact(f"could not parse {quoted} here")


async def test_creating_and_revoking_a_token_is_audited_without_the_token(
    tokens: Tokens, harness: RunHarness
) -> None:
    made, secret = await tokens.create("owner", TokenKind.NODE, node_id="laptop")
    await tokens.revoke(made.token_id)
    records = await harness.database.audit.list_records(
        OWNER, of_host=True, action=None, storage_class=None, since=None, until=None, before=None, limit=10
    )
    assert [link.action for link in records] == ["token.revoked", "token.created"]
    for link in records:
        assert made.token_id in link.record
        assert secret not in link.record
        assert secret.removeprefix("easel_") not in link.record
