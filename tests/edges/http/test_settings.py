"""The settings of a user over HTTP: read, changed, and used by the next step of a run."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from easel.host.auth.tokens import Tokens
from tests.edges.http.live import LiveEasel, script
from tests.host.conftest import TestTool
from tests.requirements import rule
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "sk-0123456789-distinctive"
SECRET_KEY = "k" * 32
DEFAULTS = {
    "provider": "scripted",
    "model": "scripted",
    "api_key": None,
    "base_url": None,
    "reasoning_effort": None,
    "token_budget": 100_000,
    "approval_by": "anyone",
}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveEasel]:
    with LiveEasel(tmp_path, with_worker=False) as easel:
        yield easel


def change(easel: LiveEasel, at: int = 0, /, **changes: Any) -> Any:
    return easel.ask("PUT", "/api/settings", json=changes, at=at)


@rule("RX-10", "RX-19")
def test_settings_are_read_and_changed(live: LiveEasel) -> None:
    first = live.get("/api/settings").json()
    assert first == {**DEFAULTS, "sources": dict.fromkeys(DEFAULTS, "default")}
    answer = change(live, provider="anthropic", api_key=KEY, token_budget=50_000)
    assert answer.status_code == 200
    shown = answer.json()
    assert KEY not in answer.text
    assert (shown["provider"], shown["api_key"], shown["token_budget"]) == ("anthropic", "sk-…tive", 50_000)
    assert shown["sources"]["api_key"] == shown["sources"]["provider"] == "user"
    assert shown["sources"]["model"] == "default"
    assert live.get("/api/settings").json() == shown == change(live).json()
    cleared = change(live, provider=None, api_key=None, token_budget=None).json()
    assert cleared == first


def test_bad_settings_are_refused_without_their_secret(live: LiveEasel) -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"provider": "claude"}, "Did you mean anthropic?"),
        ({"token_budget": 1}, "from 4000"),
        ({"token_budget": "many"}, "The body is invalid"),
        ({"api_key": f"{KEY} x", "provider": "gemini"}, "without spaces"),
        ({"api_key": KEY}, "belongs to a provider"),
        ({"base_url": f"http://me:{KEY}@host"}, "must not contain a user name"),
    ]
    for changes, message in refusals:
        answer = change(live, **changes)
        assert answer.status_code == 400
        assert message in answer.json()["error"]["message"]
        assert KEY not in answer.text
    assert live.get("/api/settings").json()["sources"]["provider"] == "default"


@rule("RX-54")
def test_settings_belong_to_their_user(live: LiveEasel) -> None:
    change(live, provider="gemini", api_key=KEY)
    live.add_person("ada")
    tokens = Tokens(live.instances[0].opened.tokens, live.instances[0].services.audit)
    [service, other] = [
        live.do(tokens.create(user, kind))[1] for user, kind in (("owner", "service"), ("ada", "user"))
    ]
    with live.stranger() as http:
        mine = http.get("/api/settings", headers={"Authorization": f"Bearer {service}"}).json()
        assert mine["provider"] == "gemini"
        theirs = http.get("/api/settings", headers={"Authorization": f"Bearer {other}"}).json()
        assert (theirs["provider"], theirs["api_key"]) == ("scripted", None)
        # A page of another site, or a canvas page, whose origin is opaque.
        for origin in ("null", "https://evil.example"):
            crossed = live.ask("PUT", "/api/settings", json={"model": "x"}, headers={"Origin": origin})
            assert crossed.status_code == 403


def test_check_of_the_scripted_model_makes_no_request(live: LiveEasel) -> None:
    checked = live.post("/api/settings/check").json()
    assert checked == {"ok": True, "text": "scripted, which needs no key and makes no request"}
    change(live, provider="gemini")
    checked = live.post("/api/settings/check").json()
    assert not checked["ok"]
    assert "no API key is set for gemini" in checked["text"]


def test_secret_key_is_generated_in_the_data_folder(tmp_path: Path) -> None:
    with LiveEasel(tmp_path, with_worker=False) as easel:
        change(easel, provider="anthropic", api_key=KEY)
    path = tmp_path / "secret-key"
    assert path.stat().st_mode & 0o777 == 0o600
    with LiveEasel(tmp_path, with_worker=False, settings={"secret_key": SECRET_KEY}) as easel:
        assert easel.get("/api/settings").json()["api_key"] == "sk-…tive", "the key in the folder still reads"
    path.unlink()
    with LiveEasel(tmp_path, with_worker=False) as easel:
        shown = easel.get("/api/settings").json()
        assert shown["api_key"] == "unreadable"
        assert "EASEL_OLD_SECRET_KEYS" in shown["note"]


# --- several instances --------------------------------------------------------------------------------------


@pytest.fixture
def database_url(postgres: str) -> Iterator[str]:
    url = create_database(postgres)
    yield url
    drop_database(postgres, url.rpartition("/")[2])


def test_postgres_needs_the_secret_key_of_all_instances_for_a_secret(
    tmp_path: Path, database_url: str
) -> None:
    with LiveEasel(tmp_path, database_url, with_worker=False) as easel:
        assert change(easel, provider="gemini").status_code == 200
        refused = change(easel, api_key=KEY)
        assert (refused.status_code, refused.json()["error"]["name"]) == (503, "SECRETS_UNAVAILABLE")
        assert "EASEL_SECRET_KEY must be set" in refused.json()["error"]["message"]
    assert not (tmp_path / "secret-key").exists()


@rule("RX-02")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_change_takes_effect_at_the_next_step(kind: str, tmp_path: Path, request: Any) -> None:
    """The tool of the first step is answered after the change, which another instance made."""
    called, answer = threading.Event(), threading.Event()

    async def pause(_: Any) -> Any:
        called.set()
        await asyncio.to_thread(answer.wait, 30)
        return {}

    url = request.getfixturevalue("database_url") if kind == "postgres" else ""
    settings = {"secret_key": SECRET_KEY}
    edges = 2 if kind == "postgres" else 1
    with LiveEasel(tmp_path, url, edges=edges, settings=settings, tools=[TestTool("pause", pause)]) as easel:
        run_id = easel.start(script({"call": "pause", "args": {}}, {"say": "still scripted"}))
        assert called.wait(30)
        assert change(easel, edges - 1, provider="gemini").status_code == 200
        answer.set()
        easel.events(run_id)
        run = easel.view(run_id)
        assert run["status"] == "failed"
        assert "no API key is set for gemini" in run["error_message"]
