"""`easel secret set`, `list` and `delete`."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from easel.ids import OWNER
from tests.cli.commands import TIMEOUT_SECONDS, environment_of, invoke_easel
from tests.edges.http.live import LiveEasel, capture_log
from tests.requirements import rule
from tests.support.processes import EASEL

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUE = "distinctive\n value ß"


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with capture_log(), LiveEasel(tmp_path_factory.mktemp("data"), with_worker=False) as live:
        yield live


def secret(easel: LiveEasel, *words: str) -> Any:
    return invoke_easel("secret", *words, "--url", easel.base_url, TOKEN=easel.token)


def stored(easel: LiveEasel, name: str) -> str:
    return easel.do(easel.instances[0].services.secrets.resolve(OWNER, [name]))[name]


@rule("RS-66")
def test_secret_is_read_from_a_pipe_listed_and_deleted(easel: LiveEasel) -> None:
    assert "You have no secrets" in secret(easel, "list").stdout
    done = subprocess.run(
        [*EASEL, "secret", "set", "PIPED", "--url", easel.base_url],
        env=environment_of(TOKEN=easel.token),
        input=f"{VALUE}\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Stored PIPED.\n"
    assert stored(easel, "PIPED") == VALUE
    listed = secret(easel, "list")
    assert listed.stdout.startswith("PIPED   set 20")
    assert secret(easel, "delete", "PIPED").stdout == "Deleted PIPED.\n"
    assert "There is no secret PIPED" in secret(easel, "delete", "PIPED").stderr


@rule("RS-66")
def test_secret_is_typed_without_echo(easel: LiveEasel) -> None:
    controller, terminal = pty.openpty()
    try:
        with subprocess.Popen(
            [*EASEL, "secret", "set", "TYPED", "--url", easel.base_url],
            env=environment_of(TOKEN=easel.token),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        ) as process:
            shown = b""
            while b"not shown" not in shown:
                shown += os.read(controller, 4096)
            os.write(controller, b"typed value\n")
            assert process.wait(TIMEOUT_SECONDS) == 0
            os.close(terminal)
            with contextlib.suppress(OSError):  # the terminal was closed
                while more := os.read(controller, 4096):
                    shown += more
    finally:
        os.close(controller)
    assert "Stored TYPED." in shown.decode()
    assert "typed value" not in shown.decode()
    assert stored(easel, "TYPED") == "typed value"


@rule("RS-66")
def test_wrong_use_is_explained_and_a_value_is_no_argument(easel: LiveEasel) -> None:
    assert "programs read an environment variable" in secret(easel, "set", "PATH").stderr
    assert "is not the name of a secret" in secret(easel, "set", "A-B").stderr
    with_value = secret(easel, "set", "NAME", "my-secret-value")
    assert with_value.returncode == 2
    assert stored_names(easel) == ["TYPED"]


def stored_names(easel: LiveEasel) -> list[str]:
    return [secret["name"] for secret in easel.get("/api/secrets").json()["secrets"]]
