"""The page of an invitation, and signing in with a name and a password."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from easel.host.people import invitations
from tests.edges.http.live import WAIT_SECONDS, LiveEasel
from tests.requirements import rule
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "gU7x-mokra-9ff"
OTHER_PASSWORD = "small otters swim"
_numbers = itertools.count(1)


@pytest.fixture
def browser(small_easel: LiveEasel) -> Iterator[httpx2.Client]:
    """A browser without JavaScript, at the address of the cookie."""
    with small_easel.stranger() as client:
        yield client


class Invited:
    def __init__(self, easel: LiveEasel) -> None:
        self.name, self.easel = f"invited-{next(_numbers)}", easel
        made = easel.post("/api/people", {"name": self.name}).json()
        self.url, self.token = made["invitation_url"], made["token"]

    @property
    def code(self) -> str:
        return urlsplit(self.url).fragment

    def accept(self, client: httpx2.Client, **fields: str) -> httpx2.Response:
        form = {"name": self.name, "token": self.code, "display_name": "", "password": PASSWORD, **fields}
        return client.post("/invitation", data=form, headers=same_origin(client))


@pytest.fixture
def invited(small_easel: LiveEasel) -> Invited:
    return Invited(small_easel)


def same_origin(client: httpx2.Client) -> dict[str, str]:
    return {"origin": str(client.base_url).rstrip("/")}


def sign_in(client: httpx2.Client, name: str, password: str = PASSWORD) -> httpx2.Response:
    form = {"name": name, "password": password, "token": "", "next": "/"}
    return client.post("/sign-in", data=form, headers=same_origin(client))


def me(client: httpx2.Client) -> dict[str, Any]:
    answer = client.get("/api/me")
    return answer.json() if answer.status_code == 200 else {"status": answer.status_code}


def problem_on(page: httpx2.Response) -> str:
    found = re.search(r'role="alert">([^<]*)<', page.text)
    assert found
    return found[1]


@rule("RS-76")
def test_invitation_sets_a_name_and_a_password_and_signs_in(browser: httpx2.Client, invited: Invited) -> None:
    answer = invited.accept(browser, display_name=" Ada   Lovelace ")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert (me(browser)["name"], me(browser)["account"]) == (invited.name, invited.name)
    listed = browser.get("/api/members").json()["members"]
    assert [member["display_name"] for member in listed] == ["Ada Lovelace"]
    with invited.easel.stranger() as another:
        assert sign_in(another, invited.name).status_code == 303
        assert me(another)["name"] == invited.name


@rule("RS-76")
def test_code_of_an_invitation_is_in_the_fragment_and_in_no_other_place(
    browser: httpx2.Client, invited: Invited, package_log: list[dict[str, Any]]
) -> None:
    parts = urlsplit(invited.url)
    assert (parts.path, parse_qs(parts.query)) == ("/invitation", {"name": [invited.name]})
    assert len(invited.code) > 40
    page = browser.get(f"{parts.path}?{parts.query}")
    assert page.status_code == 200
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "same-origin"
    assert f'value="{invited.name}"' in page.text
    refused = invited.accept(browser, password="short")
    assert invited.code in refused.text, "the form can be sent again"
    assert invited.accept(browser).status_code == 303
    assert invited.code not in str(package_log)
    assert PASSWORD not in str(package_log)
    easel = invited.easel
    for table in ("invitations", "people", "audit", "tokens", "sign_ins"):
        stored = str(easel.sql(f"select * from {table}"))
        assert invited.code not in stored
        assert PASSWORD not in stored


@rule("RS-76")
def test_getting_the_page_does_not_consume_the_invitation(browser: httpx2.Client, invited: Invited) -> None:
    for _ in range(3):
        assert browser.get(f"/invitation?name={invited.name}&token={invited.code}").status_code == 200
        assert browser.head(f"/invitation?name={invited.name}").status_code == 200
    assert me(browser) == {"status": 401}
    assert invited.accept(browser).status_code == 303


@rule("RS-76")
def test_invitation_is_used_once(browser: httpx2.Client, invited: Invited) -> None:
    assert invited.accept(browser).status_code == 303
    with invited.easel.stranger() as second:
        answer = invited.accept(second, password=OTHER_PASSWORD)
        assert answer.status_code == 401
        assert "not valid" in problem_on(answer)
        assert me(second) == {"status": 401}
        assert sign_in(second, invited.name, OTHER_PASSWORD).status_code == 401


@rule("RS-76")
def test_newer_invitation_replaces_an_earlier_one_and_resets_the_password(
    browser: httpx2.Client, invited: Invited
) -> None:
    assert invited.accept(browser).status_code == 303
    newer = invited.easel.post(f"/api/people/{invited.name}/invitations", {}).json()["invitation_url"]
    newest = invited.easel.post(f"/api/people/{invited.name}/invitations", {}).json()["invitation_url"]
    with invited.easel.stranger() as second:
        assert invited.accept(second, token=urlsplit(newer).fragment).status_code == 401
        changed = invited.accept(second, token=urlsplit(newest).fragment, password=OTHER_PASSWORD)
        assert changed.status_code == 303
        assert me(second)["name"] == invited.name
    assert me_ends(browser), "earlier sign-ins ended"
    assert sign_in(browser, invited.name).status_code == 401
    assert sign_in(browser, invited.name, OTHER_PASSWORD).status_code == 303


def me_ends(client: httpx2.Client) -> bool:
    """Return whether the sign-in of the client ends."""
    wait_for_sync(lambda: me(client) == {"status": 401}, what="the sign-in ends")
    return True


@rule("RS-76")
@pytest.mark.parametrize(
    "fields, problem",
    [
        ({"password": ""}, "must not be empty"),
        ({"password": "short"}, "at least 12"),
        ({"password": "password1234"}, "guessed first"),
        ({"password": "x9-" * 400}, "at most 1024 bytes"),
        ({"display_name": "x" * 101}, "display name"),
    ],
)
def test_refused_password_leaves_the_invitation_as_it_is(
    browser: httpx2.Client, invited: Invited, fields: dict[str, str], problem: str
) -> None:
    answer = invited.accept(browser, **fields)
    assert answer.status_code == 400
    assert problem in problem_on(answer)
    assert not fields.get("password") or fields["password"] not in answer.text
    assert invited.accept(browser).status_code == 303


@rule("RS-76")
def test_invitation_is_valid_for_the_invited_person_alone(
    small_easel: LiveEasel, browser: httpx2.Client, invited: Invited
) -> None:
    other = Invited(small_easel)
    assert invited.accept(browser, name=other.name).status_code == 401
    assert invited.accept(browser, token="").status_code == 401
    assert invited.accept(browser, token=invited.token).status_code == 401, "a token is no invitation"
    assert sign_in(browser, "", "").status_code == 401
    form = {"token": invited.code, "next": "/"}
    assert browser.post("/sign-in", data=form, headers=same_origin(browser)).status_code == 401


@rule("RS-76")
def test_invitation_from_another_site_is_refused(browser: httpx2.Client, invited: Invited) -> None:
    form = {"name": invited.name, "token": invited.code, "password": PASSWORD}
    answer = browser.post("/invitation", data=form, headers={"origin": "https://evil.example"})
    assert answer.status_code == 403
    assert invited.accept(browser).status_code == 303


@rule("RS-76")
def test_invitation_of_a_disabled_person_is_not_valid(browser: httpx2.Client, invited: Invited) -> None:
    easel = invited.easel
    assert easel.ask("PATCH", f"/api/people/{invited.name}", json={"disabled": True}).status_code == 200
    assert invited.accept(browser).status_code == 401


# -- signing in ----------------------------------------------------------------------------------------------


@rule("RS-76")
def test_wrong_name_and_wrong_password_have_the_same_answer(
    small_easel: LiveEasel, browser: httpx2.Client, invited: Invited
) -> None:
    assert invited.accept(browser).status_code == 303
    no_password, disabled = Invited(small_easel), Invited(small_easel)
    assert disabled.accept(browser).status_code == 303
    small_easel.ask("PATCH", f"/api/people/{disabled.name}", json={"disabled": True})
    with small_easel.stranger() as stranger:
        answers = [
            sign_in(stranger, name, password)
            for name, password in (
                (invited.name, "another password"),
                (invited.name, ""),
                (invited.name, "x" * 1_025),
                ("no-such-person", PASSWORD),
                ("No Such Person", PASSWORD),
                (no_password.name, PASSWORD),
                (no_password.name, ""),
                (disabled.name, PASSWORD),
            )
        ]
    assert {(answer.status_code, answer.text) for answer in answers} == {(401, answers[0].text)}
    assert "do not match" in problem_on(answers[0])
    assert all("set-cookie" not in answer.headers for answer in answers)


@rule("RS-76")
def test_empty_form_is_no_sign_in(browser: httpx2.Client) -> None:
    for form in ({}, {"name": "owner"}, {"name": "owner", "password": ""}, {"token": ""}):
        assert browser.post("/sign-in", data=form, headers=same_origin(browser)).status_code == 401


@rule("RS-76")
def test_first_visitor_becomes_no_operator(tmp_path_factory: pytest.TempPathFactory) -> None:
    with LiveEasel(tmp_path_factory.mktemp("new"), with_worker=False) as easel, easel.stranger() as client:
        before = easel.sql("select user_id, is_operator from people")
        assert sign_in(client, "owner").status_code == 401
        form = {"name": "owner", "token": "", "password": PASSWORD}
        assert client.post("/invitation", data=form).status_code == 401
        assert client.post("/api/people", json={"name": "me"}).status_code == 401
        assert easel.sql("select user_id, is_operator from people") == before


@rule("RS-76")
def test_wrong_passwords_slow_down_an_address_and_a_name(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        LiveEasel(
            tmp_path_factory.mktemp("slow"), with_worker=False, settings={"sign_in_failures": 2}
        ) as easel,
        easel.stranger() as client,
    ):
        for name in ("owner", "no-such-person"):
            assert [sign_in(client, name).status_code for _ in range(2)] == [401, 401], name
            answer = sign_in(client, name)
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            easel.instances[0].services.passwords._throttle._by_address.clear()
        refused = client.post(
            "/invitation", data={"name": "x", "token": "y", "password": PASSWORD}, headers=same_origin(client)
        )
        assert refused.status_code == 401
        assert client.get("/?token=" + easel.token).status_code == 303, "a right token is not slowed down"


# -- the own password ----------------------------------------------------------------------------------------


@rule("RS-76")
def test_changed_password_ends_the_other_sign_ins(browser: httpx2.Client, invited: Invited) -> None:
    assert invited.accept(browser).status_code == 303
    with invited.easel.stranger() as other:
        assert sign_in(other, invited.name).status_code == 303
        change = {"old_password": PASSWORD, "new_password": OTHER_PASSWORD}
        for wrong in ("", "another password", OTHER_PASSWORD):
            answer = browser.post("/api/me/password", json={**change, "old_password": wrong})
            assert answer.status_code == 403
        weak = browser.post("/api/me/password", json={**change, "new_password": f"{invited.name}-12"})
        assert weak.status_code == 400
        assert me(other)["name"] == invited.name
        assert browser.post("/api/me/password", json=change).status_code == 204
        assert me_ends(other)
        assert me(browser)["name"] == invited.name
        assert sign_in(other, invited.name).status_code == 401
        assert sign_in(other, invited.name, OTHER_PASSWORD).status_code == 303


@rule("RS-76")
def test_program_has_no_password(small_easel: LiveEasel) -> None:
    _, service = small_easel.new_token("service")
    answer = httpx2.post(
        f"{small_easel.base_url}/api/me/password",
        json={"new_password": PASSWORD},
        headers={"Authorization": f"Bearer {service}"},
        timeout=WAIT_SECONDS,
    )
    assert answer.status_code == 403


def test_invitations_expire_after_a_week() -> None:
    assert invitations.INVITATION_SECONDS == 7 * 24 * 3_600


@rule("RS-76")
def test_name_that_no_account_can_have_is_unknown(browser: httpx2.Client, invited: Invited) -> None:
    assert invited.accept(browser).status_code == 303
    for path in ("/api/me?account=a%00b", "/api/me?account=A_b"):
        assert browser.get(path).status_code == 404
    assert sign_in(browser, "a\0b").status_code == 401
    easel = invited.easel
    assert easel.get("/api/people?after=%00").status_code == 400
    assert easel.post("/api/people/a%00b/invitations", {}).status_code == 404


@rule("RS-76")
def test_invitation_is_not_lost_by_an_account_in_the_address(
    browser: httpx2.Client, invited: Invited
) -> None:
    other = Invited(invited.easel)
    assert other.accept(browser).status_code == 303, "the browser has a cookie"
    form = {"name": invited.name, "token": invited.code, "display_name": "", "password": PASSWORD}
    answer = browser.post("/invitation?account=x", data=form, headers=same_origin(browser))
    assert answer.status_code == 303
    assert me(browser)["name"] == invited.name
