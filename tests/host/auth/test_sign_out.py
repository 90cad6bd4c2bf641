"""Sign-out: an ended sign-in is refused on every instance, and others cost no extra query."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.stream.notifications import SignedOut, from_text, to_text
from easel.core.token import TokenKind
from easel.errors import NotSignedIn, Unavailable
from easel.host.auth import credentials
from easel.host.auth.tokens import Tokens
from easel.ids import OWNER, UserId
from tests.host.auth.signing_in import TOKEN, SigningIn
from tests.requirements import case
from tests.support.waiting import TIMEOUT_SECONDS, within_timeout

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.host.conftest import RunHarness

ME = UserId(OWNER)
LONG_SECONDS = 1_000.0  # no query is repeated within a test


@pytest.fixture
def signing_in(harness: RunHarness) -> SigningIn:
    return SigningIn(harness, notifier=harness.database.notifier)


@pytest.fixture
def queries(harness: RunHarness, monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The sign-ins that were queried, by query."""
    queried: list[list[Any]] = []
    list_valid = harness.database.sign_ins.list_valid

    async def counted(sign_ins: Collection[Any]) -> Any:
        queried.append(list(sign_ins))
        return await list_valid(sign_ins)

    monkeypatch.setattr(harness.database.sign_ins, "list_valid", counted)
    return queried


@case("O9")
async def test_sign_out_ends_the_cookie_of_one_browser_only(signing_in: SigningIn) -> None:
    mine, other = await signing_in.cookies.issue(ME), await signing_in.cookies.issue(ME)
    assert mine != other, "each has its own sign-in"
    await signing_in.revocation.sign_out(await signing_in.by_cookie(mine))
    assert await signing_in.cookies.check(mine) is None
    await signing_in.by_cookie(other)


@case("O9")
async def test_person_ends_all_other_sign_ins_of_their_own(
    harness: RunHarness, signing_in: SigningIn
) -> None:
    await harness.sql("insert into accounts (account_id) values ('ada')")
    await harness.sql("insert into people (user_id) values ('ada')")
    mine, other = await signing_in.cookies.issue(ME), await signing_in.cookies.issue(ME)
    of_ada = await signing_in.cookies.issue(UserId("ada"))
    kept = (await signing_in.by_cookie(mine)).sign_in_id
    await signing_in.revocation.sign_out_others(ME, kept)
    assert await signing_in.cookies.check(other) is None
    await signing_in.by_cookie(mine)
    await signing_in.by_cookie(of_ada)


@case("O9")
async def test_sign_out_is_notified_to_other_instances(harness: RunHarness, queries: list[list[Any]]) -> None:
    notifier = harness.database.notifier
    here, there = (SigningIn(harness, notifier=notifier, recheck_seconds=LONG_SECONDS) for _ in range(2))
    cookie = await here.cookies.issue(ME)
    await there.by_cookie(cookie)
    queries.clear()
    await here.revocation.sign_out(await here.by_cookie(cookie))
    for _ in range(3):
        await asyncio.sleep(0)  # the notifier of one process delivers in the next turn of the loop
    assert await there.cookies.check(cookie) is None
    assert len(queries) == 1, "the one that authenticated the cookie here"


@case("O9")
async def test_lost_notification_delays_sign_out_by_the_recheck_time(harness: RunHarness) -> None:
    here, there, new = (SigningIn(harness, recheck_seconds=LONG_SECONDS) for _ in range(3))
    cookie = await here.cookies.issue(ME)
    await there.by_cookie(cookie)
    await here.revocation.sign_out(await here.by_cookie(cookie))
    assert await new.cookies.check(cookie) is None, "an instance that does not know the sign-in queries it"
    await there.by_cookie(cookie)
    there.credentials.recheck_seconds = 0.0
    assert await there.cookies.check(cookie) is None


async def test_sign_in_is_queried_once_and_not_for_every_request(
    signing_in: SigningIn, queries: list[list[Any]]
) -> None:
    signing_in.credentials.recheck_seconds = LONG_SECONDS
    cookie = await signing_in.cookies.issue(ME)
    for _ in range(50):
        await signing_in.by_cookie(cookie)
    assert len(queries) == 1, "the role comes with it"


async def test_known_sign_in_stays_valid_while_the_database_is_unavailable_and_an_unknown_one_fails(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing_in = SigningIn(harness, recheck_seconds=0.0)
    cookie, new = await signing_in.cookies.issue(ME), await signing_in.cookies.issue(ME)
    await signing_in.by_cookie(cookie)

    async def fail(_: Collection[Any]) -> Any:
        raise Unavailable(what="The database")

    monkeypatch.setattr(harness.database.sign_ins, "list_valid", fail)
    await signing_in.by_cookie(cookie)
    with pytest.raises(Unavailable):
        await signing_in.cookies.check(new)


@case("O9")
@pytest.mark.parametrize("is_notified", [True, False])
async def test_sign_out_closes_what_the_cookie_opened_on_every_instance_and_nothing_else(
    harness: RunHarness, is_notified: bool
) -> None:
    notifier = harness.database.notifier if is_notified else None
    here, there = (SigningIn(harness, notifier=notifier) for _ in range(2))
    cookie, other = await here.cookies.issue(ME), await here.cookies.issue(ME)
    all_open = asyncio.Barrier(4)

    async def hold_open(signing_in: SigningIn, cookie: str) -> None:
        async with signing_in.revocation.while_valid(await signing_in.by_cookie(cookie)):
            await all_open.wait()
            await asyncio.Event().wait()

    mine, remote, of_other = (
        asyncio.create_task(hold_open(*args)) for args in ((here, cookie), (there, cookie), (there, other))
    )
    await within_timeout(all_open.wait())
    await here.revocation.sign_out(await here.by_cookie(cookie))
    for ended in (mine, remote):
        with pytest.raises(NotSignedIn):
            await asyncio.wait_for(ended, TIMEOUT_SECONDS)
    assert not of_other.done()
    of_other.cancel()
    await asyncio.gather(of_other, return_exceptions=True)
    await asyncio.gather(here.revocation.close(), there.revocation.close())


@case("O9")
async def test_block_entered_during_sign_out_ends_at_once(signing_in: SigningIn, harness: RunHarness) -> None:
    principal, is_notified = await signing_in.by_cookie(await signing_in.cookies.issue(ME)), asyncio.Event()
    harness.database.notifier.listen(lambda _: is_notified.set())
    await signing_in.revocation.sign_out(principal)
    # The watchers of this sign-in were called; the next one is too late.
    await within_timeout(is_notified.wait())
    with pytest.raises(NotSignedIn):
        async with asyncio.timeout(TIMEOUT_SECONDS), signing_in.revocation.while_valid(principal):
            await asyncio.Event().wait()
    await signing_in.revocation.close()


@case("O9")
async def test_watcher_is_called_once_for_a_sign_in_that_ended_with_its_token(
    signing_in: SigningIn, harness: RunHarness
) -> None:
    tokens = Tokens(harness.database.tokens, harness.audit)
    made, _ = await tokens.create("owner", TokenKind.USER)
    principal = await signing_in.by_cookie(await signing_in.cookies.issue(ME, token_id=made.token_id))
    calls: list[str] = []
    signing_in.revocation.watch(principal, lambda: calls.append("first"))
    stop = signing_in.revocation.watch(principal, lambda: calls.append("stopped"))
    stop()
    await tokens.revoke(made.token_id)
    await signing_in.revocation.end_revoked()
    assert calls == ["first"]
    await signing_in.revocation.sign_out(principal)
    await signing_in.revocation.end_revoked()
    assert calls == ["first"]
    await signing_in.revocation.close()


@case("O9")
async def test_sign_in_that_is_watched_during_the_recheck_stays_open(
    signing_in: SigningIn, harness: RunHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [await signing_in.by_cookie(await signing_in.cookies.issue(ME)) for _ in range(2)]
    list_valid, calls = harness.database.sign_ins.list_valid, list[str]()

    async def watch_second(sign_ins: Collection[Any]) -> Any:
        signing_in.revocation.watch(second, lambda: calls.append("second"))
        return await list_valid(sign_ins)

    monkeypatch.setattr(harness.database.sign_ins, "list_valid", watch_second)
    signing_in.revocation.watch(first, lambda: calls.append("first"))
    await signing_in.revocation.end_revoked()
    assert calls == []
    await signing_in.revocation.close()


@case("O9")
async def test_browser_that_signs_in_again_keeps_its_sign_in(
    signing_in: SigningIn, harness: RunHarness
) -> None:
    first = await signing_in.cookies.issue(ME)
    again = await signing_in.cookies.issue(ME, before=await signing_in.by_cookie(first))
    await signing_in.revocation.sign_out(await signing_in.by_cookie(again))
    assert [await signing_in.cookies.check(cookie) for cookie in (first, again)] == [None, None]
    await harness.sql("insert into accounts (account_id) values ('ada')")
    await harness.sql("insert into people (user_id) values ('ada')")
    owners = await signing_in.cookies.issue(ME)
    theirs = await signing_in.cookies.issue(UserId("ada"), before=await signing_in.by_cookie(owners))
    await signing_in.revocation.sign_out(await signing_in.by_cookie(theirs))
    await signing_in.by_cookie(owners)


async def test_sign_out_with_a_token_does_nothing(signing_in: SigningIn) -> None:
    principal = await signing_in.credentials.authenticate(TOKEN)
    assert principal is not None
    await signing_in.revocation.sign_out(principal)
    assert await signing_in.credentials.authenticate(TOKEN) is not None


async def test_ended_sign_in_that_was_evicted_is_queried_again(
    signing_in: SigningIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "MAX_ENDED", 3)
    signing_in.credentials.recheck_seconds = 0.0
    cookies = [await signing_in.cookies.issue(ME) for _ in range(8)]
    for cookie in cookies:
        await signing_in.revocation.sign_out(await signing_in.by_cookie(cookie))
    assert [await signing_in.cookies.check(cookie) for cookie in cookies] == [None] * 8


def test_sign_out_notification_survives_its_text_form() -> None:
    notification = SignedOut("sign_0123")
    assert from_text(to_text(notification)) == notification
