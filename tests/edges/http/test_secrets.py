"""The secrets of a user over HTTP: set, listed and deleted by a person, and never returned."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.secret.secret import MAX_SECRETS, MAX_VALUE_BYTES
from easel.errors import Forbidden
from easel.ids import OWNER, RunId
from tests.edges.http.live import LiveEasel
from tests.requirements import rule
from tests.support.principals import agent_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

VALUE = "distinctive value 0123"


@pytest.fixture(autouse=True)
def without_secrets(easel: LiveEasel) -> Iterator[None]:
    yield
    easel.sql("delete from secrets")


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with LiveEasel(tmp_path_factory.mktemp("easel"), with_worker=False) as live:
        yield live


def put(easel: LiveEasel, name: str, value: Any = VALUE) -> httpx2.Response:
    return easel.ask("PUT", f"/api/secrets/{name}", json={"value": value})


@rule("RS-66")
def test_secret_is_set_listed_by_name_and_deleted(easel: LiveEasel) -> None:
    assert put(easel, "DEPLOY_KEY").status_code == 204
    assert put(easel, "OTHER").status_code == 204
    listed = easel.get("/api/secrets")
    assert [secret["name"] for secret in listed.json()["secrets"]] == ["DEPLOY_KEY", "OTHER"]
    assert set(listed.json()["secrets"][0]) == {"name", "created_at", "updated_at"}
    assert VALUE not in listed.text
    first = easel.get("/api/secrets?limit=1").json()
    assert first["next"] == "DEPLOY_KEY"
    second = easel.get(f"/api/secrets?limit=1&after={first['next']}").json()
    assert [secret["name"] for secret in second["secrets"]] == ["OTHER"]
    assert easel.ask("DELETE", "/api/secrets/OTHER").status_code == 204
    assert easel.ask("DELETE", "/api/secrets/OTHER").status_code == 404
    assert easel.get("/api/secrets?after=DEPLOY_KEY").json() == {"secrets": []}


@rule("RS-66")
def test_names_and_values_are_checked_and_the_error_does_not_repeat_the_value(easel: LiveEasel) -> None:
    refusals = [
        ("1A", VALUE, "is not the name of a secret"),
        ("A-B", VALUE, "is not the name of a secret"),
        ("PATH", VALUE, "Choose another, such as MY_PATH"),
        ("LD_PRELOAD", VALUE, "programs read an environment variable"),
        ("BASH_ENV", VALUE, "programs read an environment variable"),
        ("http_proxy", VALUE, "programs read an environment variable"),
        ("KEY", "  five5  ", "at least 6 characters"),
        ("KEY", f"{VALUE}\0", "zero byte"),
        ("KEY", 123456, "The body is invalid"),
    ]
    for name, value, message in refusals:
        answer = put(easel, name, value)
        assert answer.status_code == 400
        assert message in answer.json()["error"]["message"]
        assert VALUE not in answer.text
        assert "five5" not in answer.text
    assert put(easel, "KEY", "x" * (MAX_VALUE_BYTES + 1)).status_code == 413
    assert put(easel, "KEY", "x" * MAX_VALUE_BYTES).status_code == 204
    assert put(easel, "KEY", "six666").status_code == 204


@rule("RS-66")
def test_number_of_secrets_of_a_user_is_limited(easel: LiveEasel) -> None:
    now = "1"
    for number in range(MAX_SECRETS):
        easel.sql(f"insert into secrets values ('owner', 'S{number}', 'k', x'00', {now}, {now})")
    refused = put(easel, "ONE_MORE")
    assert refused.status_code == 400
    assert f"{MAX_SECRETS} secrets, which is the limit" in refused.text
    assert put(easel, "S1").status_code == 204


@rule("RS-66")
def test_secrets_are_closed_to_agents(easel: LiveEasel) -> None:
    put(easel, "KEY")
    secrets, agent = easel.instances[0].services.secrets, agent_of(OWNER, RunId("run_1"))
    for attempt in (
        secrets.list_names(agent, "", 10),
        secrets.set(agent, "KEY", "another value"),
        secrets.delete(agent, "KEY"),
    ):
        with pytest.raises(Forbidden, match="only a person"):
            easel.do(attempt)


@rule("RS-66")
def test_changes_are_audited_by_name_and_the_value_is_stored_only_encrypted(easel: LiveEasel) -> None:
    put(easel, "AUDITED")
    easel.ask("DELETE", "/api/secrets/AUDITED")
    rows = easel.sql("select action, record from audit where action like 'secret.%' order by seq")
    records = [json.loads(row["record"]) for row in rows]
    of_this = [record for record in records if record["subject"] == "AUDITED"]
    assert [record["action"] for record in of_this] == ["secret.set", "secret.deleted"]
    put(easel, "AUDITED")
    [row] = easel.sql("select * from secrets")
    assert VALUE.encode() not in bytes(row["data"])
    for path in easel.folder.rglob("*"):
        assert not path.is_file() or VALUE.encode() not in path.read_bytes()
