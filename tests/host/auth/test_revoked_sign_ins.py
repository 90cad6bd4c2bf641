"""Signing out: a cookie that was given back opens nothing, wherever it is shown, and costs the others nothing."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.stream.notifications import SignedOut, from_text, to_text
from easel.core.token import TokenKind
from easel.errors import NotSignedIn, Unavailable
from easel.host.auth import revoked_sign_ins as sign_outs_module
from easel.host.auth import sign_in as sign_in_module
from easel.host.auth.revoked_sign_ins import RevokedSignIns
from easel.host.auth.sign_in import COOKIE_SECONDS, SignIn
from easel.host.auth.tokens import Tokens
from easel.stores.sqlite.notifier import LocalNotifier
from tests.requirements import case
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from easel.core.principal import Principal
    from tests.host.conftest import Bench

NOW = 1_800_000_000.0
TOKEN = "the right token"


def an_instance(bench: Bench, notifier: LocalNotifier | None = None) -> SignIn:
    """With its own bell it hears of nobody else, as when a ring is lost."""
    sign_outs = RevokedSignIns(
        bench.database.sign_ins, notifier or LocalNotifier(), keep_seconds=COOKIE_SECONDS
    )
    return SignIn(TOKEN, bench.database.tokens, sign_outs)


@pytest.fixture
def door(bench: Bench) -> SignIn:
    return an_instance(bench, bench.database.notifier)


@pytest.fixture
def looks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the store is asked."""
    asked: list[list[str]] = []
    look = bench.database.sign_ins.filter_revoked

    async def counted(sign_in_ids: Sequence[str]) -> set[str]:
        asked.append(list(sign_in_ids))
        return await look(sign_in_ids)

    monkeypatch.setattr(bench.database.sign_ins, "filter_revoked", counted)
    return asked


async def let_in(door: SignIn, cookie: str) -> Principal:
    principal = await door.by_cookie(cookie, NOW)
    assert principal is not None
    return principal


@case("O9")
async def test_a_cookie_that_was_given_back_opens_nothing_and_another_browser_s_still_does(
    door: SignIn,
) -> None:
    mine, other = door.new_cookie(NOW), door.new_cookie(NOW)
    assert mine != other, "each has its own sign-in"
    await door.sign_out(await let_in(door, mine))
    assert await door.by_cookie(mine, NOW) is None
    await let_in(door, other)


@case("O9")
async def test_another_instance_hears_of_it_by_the_bell(bench: Bench, looks: list[list[str]]) -> None:
    here, there = (an_instance(bench, bench.database.notifier) for _ in range(2))
    cookie = here.new_cookie(NOW)
    await let_in(there, cookie)
    looks.clear()
    await here.sign_out(await let_in(here, cookie))
    for _ in range(3):
        await asyncio.sleep(0)  # a bell of one process tells on the next turn of its loop
    assert await there.by_cookie(cookie, NOW) is None
    assert len(looks) == 1, "the look that let them in here"


@case("O9")
async def test_a_lost_ring_costs_a_while_and_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there, new = (an_instance(bench) for _ in range(3))
    cookie = here.new_cookie(NOW)
    await let_in(there, cookie)
    await here.sign_out(await let_in(here, cookie))
    assert await new.by_cookie(cookie, NOW) is None, "whoever knew nothing of it looks"
    await let_in(there, cookie)
    monkeypatch.setattr(sign_outs_module, "HEARD_SECONDS", 0.0)
    assert await there.by_cookie(cookie, NOW) is None


async def test_a_sign_in_is_looked_up_once_and_not_for_every_request(
    door: SignIn, looks: list[list[str]]
) -> None:
    cookie = door.new_cookie(NOW)
    for _ in range(50):
        await let_in(door, cookie)
    assert len(looks) == 1


async def test_who_was_in_stays_in_while_the_store_is_away_and_nobody_else_comes(
    bench: Bench, door: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie, new = door.new_cookie(NOW), door.new_cookie(NOW)
    await let_in(door, cookie)
    monkeypatch.setattr(sign_outs_module, "HEARD_SECONDS", 0.0)

    async def away(_: Sequence[str]) -> Any:
        raise Unavailable(what="The database")

    monkeypatch.setattr(bench.database.sign_ins, "filter_revoked", away)
    await let_in(door, cookie)
    with pytest.raises(Unavailable):
        await door.by_cookie(new, NOW)


@case("O9")
@pytest.mark.parametrize("is_heard", [True, False])
async def test_what_is_open_by_a_cookie_ends_with_it_and_nothing_else_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_heard: bool
) -> None:
    monkeypatch.setattr(sign_in_module, "RECHECK_SECONDS", 0.01)
    notifier = bench.database.notifier if is_heard else None
    here, there = (an_instance(bench, notifier) for _ in range(2))
    cookie, other = here.new_cookie(NOW), here.new_cookie(NOW)
    all_in = asyncio.Barrier(4)

    async def stay(door: SignIn, cookie: str) -> None:
        async with door.while_valid(await let_in(door, cookie)):
            await all_in.wait()
            await asyncio.Event().wait()

    mine, elsewhere, of_other = (
        asyncio.create_task(stay(*how)) for how in ((here, cookie), (there, cookie), (there, other))
    )
    await within_timeout(all_in.wait())
    await here.sign_out(await let_in(here, cookie))
    with pytest.raises(NotSignedIn):
        await asyncio.wait_for(mine, TIMEOUT_SECONDS)
    if not is_heard:
        monkeypatch.setattr(sign_outs_module, "HEARD_SECONDS", 0.0)
    with pytest.raises(NotSignedIn):
        await asyncio.wait_for(elsewhere, TIMEOUT_SECONDS)
    assert not of_other.done()
    of_other.cancel()
    await asyncio.gather(of_other, return_exceptions=True)
    await asyncio.gather(here.close(), there.close())


@case("O9")
async def test_what_is_opened_in_the_moment_of_signing_out_ends_at_once(door: SignIn, bench: Bench) -> None:
    principal, is_rung = await let_in(door, door.new_cookie(NOW)), asyncio.Event()
    bench.database.notifier.listen(lambda _: is_rung.set())
    await door.sign_out(principal)
    await within_timeout(is_rung.wait())  # all who watched have been told, and nobody tells it again
    with pytest.raises(NotSignedIn):
        async with asyncio.timeout(TIMEOUT_SECONDS), door.while_valid(principal):
            await asyncio.Event().wait()
    await door.close()


@case("O9")
async def test_what_hangs_on_a_token_and_on_a_cookie_ends_once(
    door: SignIn, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_module, "RECHECK_SECONDS", 0.01)
    tokens = Tokens(bench.database.tokens, bench.audit)
    made, secret = await tokens.create("owner", TokenKind.USER)
    by_token = await door.by_token(secret)
    assert by_token is not None
    principal = await let_in(door, door.new_cookie(NOW, by_token))
    assert principal.token_id == made.token_id
    ends: list[str] = []
    door.watch(principal, lambda: ends.append("first"))
    stop = door.watch(principal, lambda: ends.append("stopped"))
    stop()
    await door.sign_out(principal)
    await tokens.revoke(made.token_id)
    await door.once()
    assert ends == ["first"]
    await door.close()


@case("O9")
async def test_a_browser_that_signs_in_again_stays_in_one_sign_in(door: SignIn, bench: Bench) -> None:
    first = door.new_cookie(NOW)
    again = door.new_cookie(NOW + 60, before=await let_in(door, first))
    await door.sign_out(await let_in(door, again))
    assert [await door.by_cookie(cookie, NOW) for cookie in (first, again)] == [None, None]
    _, secret = await Tokens(bench.database.tokens, bench.audit).create("owner", TokenKind.USER)
    other = await door.by_token(secret)
    assert other is not None
    owners = door.new_cookie(NOW)
    theirs = door.new_cookie(NOW, other, before=await let_in(door, owners))
    await door.sign_out(await let_in(door, theirs))
    await let_in(door, owners)


@case("O9")
async def test_a_cookie_of_before_opens_until_it_ends_or_is_given_back(door: SignIn, bench: Bench) -> None:
    made, _ = await Tokens(bench.database.tokens, bench.audit).create("owner", TokenKind.USER)
    until = int(NOW) + 1_000

    def signed(said: str) -> str:
        return (
            f"{said}.{hmac.new(TOKEN.encode(), f'easel cookie {said}'.encode(), hashlib.sha256).hexdigest()}"
        )

    of_owner, of_token = signed(str(until)), signed(f"{until}.{made.token_id}")
    assert [(await let_in(door, cookie)).token_id for cookie in (of_owner, of_token)] == [None, made.token_id]
    assert await door.by_cookie(of_owner, until) is None
    await door.sign_out(await let_in(door, of_owner))
    assert await door.by_cookie(of_owner, NOW) is None
    await let_in(door, of_token)


async def test_a_token_has_no_browser_to_sign_out(door: SignIn) -> None:
    principal = await door.by_token(TOKEN)
    assert principal is not None
    await door.sign_out(principal)
    assert await door.by_token(TOKEN) is not None


async def test_only_so_many_are_remembered(
    bench: Bench, door: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_outs_module, "MAX_KNOWN", 3)
    cookies = [door.new_cookie(NOW) for _ in range(8)]
    for cookie in cookies:
        await door.sign_out(await let_in(door, cookie))
    assert [await door.by_cookie(cookie, NOW) for cookie in cookies] == [None] * 8


def test_the_bell_carries_it() -> None:
    notification = SignedOut("sign_0123")
    assert from_text(to_text(notification)) == notification
