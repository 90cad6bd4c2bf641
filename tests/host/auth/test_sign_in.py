"""Who is calling: the owner's token, the tokens of others, and the cookie that stands for either."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.principal import THE_OWNER, PrincipalKind, Scope
from easel.core.token import TokenKind
from easel.errors import BadInput, NotFound, NotSignedIn
from easel.host.auth import sign_in as sign_in_module
from easel.host.auth.sign_in import COOKIE_SECONDS, SignIn
from easel.host.auth.tokens import Tokens
from tests.requirements import case
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.host.conftest import Bench

NOW = 1_800_000_000.0
DOOR = SignIn("the right token")


@pytest.fixture
def door(bench: Bench) -> SignIn:
    return SignIn("the right token", bench.database.tokens)


@pytest.fixture
def tokens(bench: Bench) -> Tokens:
    return Tokens(bench.database.tokens, bench.audit)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is at the store, and watching looks without a pause."""
    monkeypatch.setattr(sign_in_module, "RECHECK_SECONDS", 0.01)


# --- the owner --------------------------------------------------------------------------------------------------------


async def test_the_token_opens_and_nothing_else_does() -> None:
    assert await DOOR.by_token("the right token") is THE_OWNER
    for wrong in (
        "",
        "the right toke",
        "the right token ",
        "THE RIGHT TOKEN",
        "\ud800",
        "the right token\x00",
    ):
        assert await DOOR.by_token(wrong) is None


async def test_a_cookie_stands_for_the_token_until_it_ends() -> None:
    cookie = DOOR.new_cookie(NOW)
    principal = await DOOR.by_cookie(cookie, NOW + COOKIE_SECONDS - 1)
    assert principal is not None
    assert replace(principal, sign_in_id=None) == THE_OWNER
    assert await DOOR.by_cookie(cookie, NOW + COOKIE_SECONDS) is None
    assert "the right token" not in cookie


async def test_another_token_ends_all_cookies() -> None:
    assert await SignIn("a new token").by_cookie(DOOR.new_cookie(NOW), NOW) is None


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
async def test_a_changed_cookie_is_no_cookie(change: Callable[[str], str]) -> None:
    assert await DOOR.by_cookie(change(DOOR.new_cookie(NOW)), NOW) is None


async def test_keys_for_other_purposes_are_each_their_own_and_go_with_the_token() -> None:
    assert DOOR.key("views") == SignIn("the right token").key("views")
    assert len({DOOR.key("views"), DOOR.key("other"), SignIn("a new token").key("views")}) == 3


# --- others -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(TokenKind))
async def test_a_token_opens_as_what_it_was_made_for(door: SignIn, tokens: Tokens, kind: TokenKind) -> None:
    made, secret = await tokens.create("owner", kind, name="mine")
    principal = await door.by_token(secret)
    assert principal is not None
    assert (principal.user_id, principal.name, principal.kind, principal.token_id) == (
        "owner",
        "mine",
        PrincipalKind(kind.value),
        made.token_id,
    )
    assert principal.scopes == (frozenset(Scope) if kind is TokenKind.USER else frozenset()), (
        "a program or a machine does not administer"
    )
    for wrong in (secret[:-1], secret + "x", secret.upper(), made.token_id):
        assert await door.by_token(wrong) is None
    assert await SignIn("the right token").by_token(secret) is None


async def test_another_users_token_is_that_users_and_administers_nothing(
    door: SignIn, tokens: Tokens, bench: Bench
) -> None:
    await bench.database.write(
        lambda connection: (
            connection.execute("insert into users (user_id, name) values ('mallory', 'mallory')") and None
        )
    )
    _, secret = await tokens.create("mallory", TokenKind.USER)
    principal = await door.by_token(secret)
    assert principal is not None
    assert (principal.user_id, principal.scopes) == ("mallory", frozenset())


@case("O9")
async def test_a_revoked_token_opens_nothing_on_any_instance(
    bench: Bench, tokens: Tokens, no_memory: None
) -> None:
    doors = [SignIn("the right token", bench.database.tokens) for _ in range(2)]
    made, secret = await tokens.create("owner", TokenKind.USER)
    assert all([await door.by_token(secret) for door in doors])
    cookies = [
        door.new_cookie(NOW, principal) for door in doors if (principal := await door.by_token(secret))
    ]
    assert [(await doors[0].by_cookie(cookie, NOW) or THE_OWNER).token_id for cookie in cookies] == [
        made.token_id
    ] * 2
    await tokens.revoke(made.token_id)
    await asyncio.sleep(0.02)
    for door in doors:
        assert await door.by_token(secret) is None
        assert [await door.by_cookie(cookie, NOW) for cookie in cookies] == [None, None]
    with pytest.raises(NotFound):
        await tokens.revoke(made.token_id)


async def test_a_token_is_remembered_for_a_moment_only(
    door: SignIn, tokens: Tokens, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = bench.database.tokens.find_by_digest

    async def counted(digest: str) -> Any:
        nonlocal looks
        looks += 1
        return await look(digest)

    monkeypatch.setattr(bench.database.tokens, "find_by_digest", counted)
    monkeypatch.setattr(sign_in_module, "RECHECK_SECONDS", 3600.0)  # for that moment
    _, secret = await tokens.create("owner", TokenKind.USER)
    for _ in range(20):
        assert await door.by_token(secret)
    assert looks == 1
    for wrong in ("", "wrong", "easel_short", "x" * 49):
        assert await door.by_token(wrong) is None
    assert looks == 1, "what cannot be a token costs no look at the store"
    monkeypatch.setattr(sign_in_module, "RECHECK_SECONDS", 0.0)  # it is over
    assert await door.by_token(secret)
    assert looks == 2


@pytest.mark.parametrize("kind", [TokenKind.NODE, TokenKind.SERVICE])
async def test_no_cookie_stands_for_a_machine(door: SignIn, tokens: Tokens, kind: TokenKind) -> None:
    _, secret = await tokens.create("owner", kind)
    principal = await door.by_token(secret)
    assert principal is not None
    with pytest.raises(AssertionError):
        door.new_cookie(NOW, principal)


@case("O9")
async def test_what_is_open_by_a_token_ends_with_it_and_nothing_else_does(
    door: SignIn, tokens: Tokens, no_memory: None
) -> None:
    made, secret = await tokens.create("owner", TokenKind.USER)
    _, other = await tokens.create("owner", TokenKind.USER)
    all_in = asyncio.Barrier(4)

    async def stay(token: str) -> None:
        principal = await door.by_token(token)
        assert principal is not None
        async with door.while_valid(principal):
            await all_in.wait()
            await asyncio.Event().wait()

    staying, of_other, of_owner = (
        asyncio.create_task(stay(token)) for token in (secret, other, "the right token")
    )
    await within_timeout(all_in.wait())
    await tokens.revoke(made.token_id)
    with pytest.raises(NotSignedIn):
        await asyncio.wait_for(staying, TIMEOUT_SECONDS)
    assert not of_other.done()
    assert not of_owner.done()
    for task in (of_other, of_owner):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await door.close()


async def test_a_timeout_inside_is_not_taken_for_a_revoked_token(door: SignIn, tokens: Tokens) -> None:
    _, secret = await tokens.create("owner", TokenKind.USER)
    principal = await door.by_token(secret)
    assert principal is not None
    with pytest.raises(TimeoutError):
        async with door.while_valid(principal), asyncio.timeout(0.01):
            await asyncio.Event().wait()
    await door.close()


# --- making them ------------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("says, made_for, given, refused", REFUSALS, ids=[row[0] for row in REFUSALS])
async def test_what_is_no_token_is_not_made(
    tokens: Tokens, says: str, made_for: tuple[str, str], given: dict[str, Any], refused: type[Exception]
) -> None:
    with pytest.raises(refused):
        await tokens.create(*made_for, **given)
    assert await tokens.list_tokens() == []


@case("P6")
async def test_neither_token_nor_cookie_is_told_on_where_a_failure_quotes_it(
    door: SignIn, tokens: Tokens, bench: Bench
) -> None:
    _, secret = await tokens.create("owner", "user")
    principal = await door.by_token(secret)
    assert principal is not None
    for quoted in (secret, door.new_cookie(NOW, principal), door.new_cookie(NOW)):
        assert quoted not in bench.audit.redacted(f"could not parse {quoted} here")


async def test_making_and_revoking_is_in_the_audit_trail_without_the_token(
    tokens: Tokens, bench: Bench
) -> None:
    made, secret = await tokens.create("owner", TokenKind.NODE, node_id="laptop")
    await tokens.revoke(made.token_id)
    records = await bench.database.audit.list_records(
        action=None, storage_class=None, since=None, until=None, before=None, limit=10
    )
    assert [link.action for link in records] == ["token.revoked", "token.created"]
    for link in records:
        assert made.token_id in link.record
        assert secret not in link.record
        assert secret.removeprefix("easel_") not in link.record
