"""`make run` in a fresh clone: what `scripts/prepare.py` says while it works, and when it fails."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("prepare")
    monkeypatch.setattr(module, "PROGRESS_SECONDS", 0.02)
    return module


def test_long_step_says_again_and_again_how_far_it_is(
    prepare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip printed nothing for 105 s: was it stuck?"""
    gate, said = tmp_path / "gate", list[str]()
    os.mkfifo(gate)
    child = f"print('Collecting anyio==4.1 (from -r x)', flush=True); open({str(gate)!r}).read()"

    def say(line: str) -> None:
        said.append(line)
        if "anyio" in line and not gate.with_name("open").exists():
            gate.with_name("open").touch()
            gate.write_text("go on")  # the step ends only after it was announced

    monkeypatch.setattr(prepare, "say", say)
    prepare.run(sys.executable, "-c", child, describe=lambda lines: prepare.describe_pip(lines, 59))
    assert any(line.strip().startswith("package 1 of 59: anyio (") for line in said)


@pytest.mark.parametrize(
    "lines, said",
    [
        ([], ""),
        (["Collecting a==1 (from -r x (line 1))", "  Downloading a-1.whl (5 kB)"], "package 1 of 2: a"),
        (["Requirement already satisfied: a==1 in x", "Collecting b_c==2"], "package 2 of 2: b_c"),
        (["Collecting b==2", "Installing collected packages: b"], "all 2 packages are here; installing them"),
    ],
)
def test_lines_of_pip_are_counted(prepare: Any, lines: list[str], said: str) -> None:
    assert prepare.describe_pip(lines, 2) == said


def test_failed_step_shows_its_output(prepare: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="this command failed with code 3"):
        prepare.run(sys.executable, "-c", "print('the reason'); raise SystemExit(3)")
    assert "the reason" in capfd.readouterr().err
