"""Who is calling: the owner's token and the cookie that stands for it."""

import pytest

from easel.core.principal import THE_OWNER
from easel.host.sign_in import COOKIE_SECONDS, SignIn

NOW = 1_800_000_000.0
DOOR = SignIn("the right token")


def test_the_token_opens_and_nothing_else_does():
    assert DOOR.by_token("the right token") is THE_OWNER
    for wrong in ("", "the right toke", "the right token ", "THE RIGHT TOKEN", "\ud800", "the right token\x00"):
        assert DOOR.by_token(wrong) is None


def test_a_cookie_stands_for_the_token_until_it_ends():
    cookie = DOOR.new_cookie(NOW)
    assert DOOR.by_cookie(cookie, NOW + COOKIE_SECONDS - 1) is THE_OWNER
    assert DOOR.by_cookie(cookie, NOW + COOKIE_SECONDS) is None
    assert "the right token" not in cookie


def test_another_token_ends_all_cookies():
    assert SignIn("a new token").by_cookie(DOOR.new_cookie(NOW), NOW) is None


@pytest.mark.parametrize(
    "change",
    [lambda c: "9" + c, lambda c: c[:-1], lambda c: c + "0", lambda _: "", lambda _: ".", lambda _: "x.y", lambda c: c.replace(".", "")],
)
def test_a_changed_cookie_is_no_cookie(change: object):
    assert DOOR.by_cookie(change(DOOR.new_cookie(NOW)), NOW) is None  # pyright: ignore[reportCallIssue]
