"""The files that are built from `web/`: a stale one is found, and a machine without Node is named."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module


def test_stale_missing_and_superfluous_files_are_found(scripts: Any, tmp_path: Path) -> None:
    committed, fresh = tmp_path / "committed", tmp_path / "fresh"
    for folder, files in {
        committed: {"same.js": "1", "stale.js": "1", "superfluous.js": "1"},
        fresh: {"same.js": "1", "stale.js": "2", "missing.js": "1"},
    }.items():
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    found = scripts("web").find_stale(committed, fresh)
    assert found == ["missing.js", "stale.js", "superfluous.js"]


def test_without_node_nothing_is_installed_and_the_build_says_what_helps(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, web = scripts("prepare"), scripts("web")
    monkeypatch.setattr(prepare, "HOME", tmp_path)
    monkeypatch.setattr(prepare, "find_program", lambda *_: None)
    monkeypatch.setattr(prepare, "execute", lambda *_: pytest.fail("nothing must be installed"))
    prepare.prepare_packages(tmp_path / "web")
    with pytest.raises(SystemExit, match="install Node"):
        web.main(["build"])


@pytest.mark.parametrize("is_ci, code", [(True, 1), (False, 0)])
def test_without_node_checks_are_left_out_and_fail_in_ci(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_ci: bool, code: int
) -> None:
    run_tests = scripts("run_tests")
    monkeypatch.setattr(run_tests, "is_web_ready", lambda: False)
    monkeypatch.setattr(run_tests, "LINTERS", (("a linter", ["python", "-c", ""]),))
    monkeypatch.setattr(run_tests, "IN_CI", is_ci)
    assert run_tests.main(["lint"]) == code
    assert "LEFT OUT: checks and tests of web/" in capsys.readouterr().out
