"""The assembly of a process: each service is built once and shared."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import easel.host
from easel.assembly.resources import open_resources
from easel.assembly.sandbox import choose_sandbox
from easel.assembly.server import build_edge, build_gateway
from easel.assembly.services import build_services, document_rules, open_shared_services
from easel.assembly.worker import build_worker
from easel.sandbox.session_dirs import SessionDirs
from easel.settings import Settings
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Built once per kind of log, and once per background loop.
BUILT_REPEATEDLY = {"Tails", "Periodic", "NativeTool"}


def service_classes() -> Iterator[type[Any]]:
    """Yield the classes of `easel.host` that have behaviour: no values, errors or ports."""
    yield SessionDirs
    for info in pkgutil.walk_packages(easel.host.__path__, "easel.host."):
        for _, cls in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
            is_value = dataclasses.is_dataclass(cls) or issubclass(cls, BaseException)
            if cls.__module__ == info.name and not is_value and not getattr(cls, "_is_protocol", False):
                yield cls


def count_constructions(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()

    def counting(cls: type[Any]) -> Any:
        original = cls.__init__

        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            counts[cls.__name__] += 1
            original(self, *args, **kwargs)

        return init

    for cls in service_classes():
        monkeypatch.setattr(cls, "__init__", counting(cls))
    return counts


async def test_each_service_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data=str(tmp_path), sandbox_mode="logical")
    async with contextlib.AsyncExitStack() as stack:
        resources = await stack.enter_async_context(open_resources(settings))
        counts = count_constructions(monkeypatch)
        shared = await stack.enter_async_context(open_shared_services(resources, choose_sandbox(settings)))
        services = build_services(shared)
        build_edge(settings, services, build_gateway(settings, services))
        worker = build_worker(shared)
        assert all(task.on_error for task in worker._background_tasks), "errors are audited"
        assert "deletions.purge" in [task.name for task in worker._background_tasks]
    expected = {
        "CanvasTransactions",
        "CanvasAssets",
        "CanvasViews",
        "CanvasLibrary",
        "Boards",
        "ToolRegistry",
    }
    assert {*expected, "SessionDirs", "NodeRegistry", "RunWorker", "ActionService"} <= set(counts)
    assert {name: count for name, count in counts.items() if count > 1 and name not in BUILT_REPEATEDLY} == {}


@rule("RS-47")
@pytest.mark.parametrize("result, context, expected", [(262_144, 32_768, 32_768), (9_000, 32_768, 9_000)])
def test_document_tools_return_no_more_than_a_model_is_given(
    result: int, context: int, expected: int
) -> None:
    settings = Settings(max_result_bytes=result, max_context_result_bytes=context)
    assert document_rules(settings).max_result_bytes == expected
