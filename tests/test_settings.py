"""The table of settings: parsing, bounds, error messages and the names that are promised."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from easel import settings
from easel.assembly.storage import owner_credential
from easel.errors import BadSettings
from easel.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
SECRET = "hush-hush-hush"
# The settings of DESIGN §6, with their defaults.
PROMISED = {
    "EASEL_TOKEN": "",
    "EASEL_HOST": "127.0.0.1",
    "EASEL_PORT": 8800,
    "EASEL_DATA": "",
    "EASEL_DATABASE_URL": "",
    "EASEL_BLOB_URL": "",
    "EASEL_CLAIM_SECONDS": 15.0,
    "EASEL_PUBLIC_URL": "",
    "EASEL_LOG": "info",
    "EASEL_POLL_SECONDS": 1.0,
    "EASEL_DRAIN_SECONDS": 5.0,
    "EASEL_WORKER_PORT": 0,
    "EASEL_MAX_BODY_BYTES": 8_388_608,
    "EASEL_HEARTBEAT_SECONDS": 15.0,
}
BAD = [
    # variable, value, part of the error message
    ("PORT", "abc", "whole number"),
    ("PORT", "80.5", "whole number"),
    ("PORT", "-1", "must be at least 0, not -1"),
    ("PORT", "65536", "must be at most 65535, not 65536"),
    ("PORT", "1" + "0" * 400, "EASEL_PORT"),
    ("PORT", "9" * 5_000, "EASEL_PORT"),
    ("CLAIM_SECONDS", "soon", "a number"),
    ("CLAIM_SECONDS", "0", "must be at least 0.2"),
    ("CLAIM_SECONDS", "-15", "must be at least 0.2"),
    ("CLAIM_SECONDS", "nan", "EASEL_CLAIM_SECONDS"),
    ("POLL_SECONDS", "inf", "EASEL_POLL_SECONDS"),
    ("HEARTBEAT_SECONDS", "1e400", "EASEL_HEARTBEAT_SECONDS"),
    ("WORKER_RUNS", "0", "must be at least 1"),
    ("DATABASE_POOL", "0", "must be at least 1"),
    ("OPEN_METRICS", "maybe", "yes or no"),
    ("SQLITE_SYNCHRONOUS", "off", "full"),
    ("PUBLIC_URL", "easel.example.org", "http"),
    ("PUBLIC_URL", "http://[", "EASEL_PUBLIC_URL"),
    ("PUBLIC_URL", "ftp://easel.example.org", "http"),
    ("ACCOUNT_LIMITS", "run=8", "EASEL_ACCOUNT_LIMITS: 'run' is not a limit of accounts; did you mean runs?"),
]


def test_promised_settings_exist_with_their_defaults() -> None:
    rows = {row.variable: row.default for row in settings.rows()}
    assert {name: rows.get(name, "missing") for name in PROMISED} == PROMISED


@pytest.mark.parametrize("row", settings.rows(), ids=lambda row: row.variable)
def test_each_row_has_a_description_and_a_valid_default(row: settings.SettingRow) -> None:
    assert re.fullmatch(r"EASEL_[A-Z0-9_]+", row.variable)
    assert row.description.endswith(".")
    assert len(row.description) > 12
    assert getattr(settings.load({row.variable: str(row.default)}), row.name) == row.default


def test_settings_of_an_empty_environment_are_the_defaults() -> None:
    assert settings.load({}) == Settings()


def test_empty_variable_counts_as_unset() -> None:
    assert settings.load({row.variable: "" for row in settings.rows()}) == Settings()


def test_command_option_overrides_the_environment_unless_it_is_none() -> None:
    environment = {"EASEL_PORT": "1", "EASEL_DATA": "there"}
    assert settings.load(environment, port=2, data=None).port == 2
    assert settings.load(environment, port=None).port == 1
    assert settings.load(environment, port=0).port == 0, "0 is a value, not None"
    assert settings.load(environment, data=Path("here")).data == "here"


@pytest.mark.parametrize("word", ["1", "true", "YES", "on", "0", "False", "no", "OFF"])
def test_booleans_accept_the_usual_words(word: str) -> None:
    assert settings.load({"EASEL_OPEN_METRICS": word}).open_metrics is (
        word.lower() in ("1", "true", "yes", "on")
    )


def test_whitespace_around_a_value_is_stripped() -> None:
    assert settings.load({"EASEL_TOKEN": f" {SECRET}\n", "EASEL_PORT": " 81 "}) == Settings(
        token=SECRET, port=81
    )


@pytest.mark.parametrize("variable, text, part", BAD, ids=[f"{row[0]}={row[1][:20]}" for row in BAD])
def test_invalid_value_is_refused_with_its_variable_and_the_reason(
    variable: str, text: str, part: str
) -> None:
    with pytest.raises(BadSettings) as refused:
        settings.load({f"EASEL_{variable}": text})
    assert f"EASEL_{variable}" in refused.value.message
    assert part in refused.value.message


@given(name=st.sampled_from([row.variable for row in settings.rows()]), text=st.text())
@example(name="EASEL_PORT", text="1" + "0" * 400)
@example(name="EASEL_OPEN_METRICS", text="\x00")
def test_any_text_is_either_accepted_or_refused(name: str, text: str) -> None:
    with contextlib.suppress(BadSettings):
        settings.load({name: text})


def test_unknown_variables_are_found() -> None:
    environment = {
        "EASEL_DATABSE_URL": "x",
        "EASEL_PORT": "1",
        "easel_port": "2",
        "EASEL": "3",
        "HOME": "/",
        "EASEL_": "4",
    }
    assert settings.unknown_variables(environment) == {
        "EASEL_": None,
        "EASEL_DATABSE_URL": "EASEL_DATABASE_URL",
    }


def test_settings_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_repr_contains_no_secret() -> None:
    assert {row.variable for row in settings.rows() if row.secret} >= {"EASEL_TOKEN", "EASEL_DATABASE_URL"}
    assert SECRET not in repr(Settings(token=SECRET, database_url=f"postgresql://u:{SECRET}@h/d"))
    assert SECRET not in repr(owner_credential(SECRET))


def test_data_folder_defaults_to_the_data_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings().data_folder == tmp_path / "easel"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings().data_folder == tmp_path / ".local" / "share" / "easel"
    assert Settings(data="~/x").data_folder == tmp_path / "x"


def test_only_settings_reads_the_environment_except_cloud_credentials() -> None:
    # The reaper is a program of its own: its environment has the secrets of the command that it starts.
    may_read = {"settings.py", "reaper.py"}
    readers = [
        (path.name, line.strip())
        for path in (ROOT / "src" / "easel").rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if path.name not in may_read and re.search(r"os\.environ|getenv\(", line) and '"AWS_' not in line
    ]
    assert readers == []


@pytest.mark.parametrize(
    "variables, message",
    [
        ({"PROVIDER": "claude"}, "Did you mean anthropic?"),
        ({"API_KEY": "sk-planted-0123456789"}, "EASEL_API_KEY needs EASEL_PROVIDER too"),
        ({"MODEL": "m"}, "EASEL_MODEL needs EASEL_PROVIDER too"),
        ({"PROVIDER": "gemini", "API_KEY": "sk-planted with-a-space"}, "EASEL_API_KEY: must consist of"),
        ({"PROVIDER": "gemini", "BASE_URL": "http://u:planted@h"}, "EASEL_BASE_URL: must not contain"),
        ({"PROVIDER": "gemini", "REASONING_EFFORT": "max"}, "EASEL_REASONING_EFFORT must be"),
        ({"TOKEN_BUDGET": "1"}, "EASEL_TOKEN_BUDGET must be at least 4000"),
        ({"OLD_SECRET_KEYS": "planted"}, "Each key in EASEL_OLD_SECRET_KEYS must have at least 32"),
    ],
)
def test_bad_model_of_the_host_is_refused_without_its_key(variables: dict[str, str], message: str) -> None:
    with pytest.raises(BadSettings) as refused:
        settings.load({f"EASEL_{name}": value for name, value in variables.items()})
    assert message in refused.value.message
    assert "planted" not in refused.value.message
