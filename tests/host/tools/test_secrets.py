"""Masking beside the event loop: many large secrets and much output stop nobody else. RS-66"""

from __future__ import annotations

import asyncio
import gc
import random
import string
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from easel.core.action.output import LiveText
from easel.core.tool.context import UsedSecrets
from easel.host.tools.secrets import open_secrets
from easel.ids import OWNER
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from easel.ids import AccountId

PIECE_LENGTH = 65_536  # as a pipe of a command returns
MAX_STALL_SECONDS = 0.1
MAX_MEMORY_BYTES = 100_000_000
PICK = random.Random(19)
ALPHABET = string.ascii_letters + string.digits + "+/\n"
VALUES = {f"KEY_{number}": "".join(PICK.choices(ALPHABET, k=32_700)) for number in range(50)}
USED = UsedSecrets(env=tuple(VALUES))
LINE = "some words of an ordinary log line, with numbers 12345 and paths /a/b/c\n"


class Source:
    async def resolve(self, account_id: AccountId, names: Collection[str]) -> Mapping[str, str]:
        assert account_id == OWNER
        return {name: VALUES[name] for name in names}

    async def find_missing(self, account_id: AccountId, names: Collection[str]) -> list[str]:
        raise NotImplementedError(account_id, names)


class LongestStall:
    """Measures how long the event loop at most ran nothing else, in CPU seconds of this process.

    Time in which other programs had the cores does not count: on a busy machine it is longer than any stall.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while True:
            started_at = time.process_time()
            await asyncio.sleep(0.001)
            self.seconds = max(self.seconds, time.process_time() - started_at)

    async def stop(self) -> float:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.seconds


async def use(output: str, on_output: Callable[[str], object]) -> None:
    """Make a call that prints, and has the beginning and the end of its output as its result."""
    async with open_secrets(Source(), OWNER, USED) as opened:
        feed = opened.mask_output(on_output)
        assert feed is not None
        for at in range(0, len(output), PIECE_LENGTH):
            feed(output[at : at + PIECE_LENGTH])
            await asyncio.sleep(0)
        result = await opened.mask_value({"output": output[:32_768] + output[-32_768:]})
    assert not [name for name, value in VALUES.items() if value[100:200] in result["output"]]


@rule("RS-66")
@pytest.mark.parametrize("size, is_limited", [(9_000_000, True), (500_000, False)], ids=["9 MB", "all shown"])
async def test_many_large_secrets_and_much_output_stop_no_other_request(size: int, is_limited: bool) -> None:
    gc.collect()
    process, live, shown = psutil.Process(), LiveText(65_536 if is_limited else size * 2), list[str]()
    before = process.memory_info().rss

    def show(text: str) -> bool:
        shown.append(text)
        live.feed(text)
        return not live.is_cut

    middle = size // 2 // len(LINE) * LINE
    stall = LongestStall()
    await asyncio.sleep(0)  # so that it measures from here on
    await use(f"{LINE}{VALUES['KEY_7']}\n{middle}{VALUES['KEY_8']}\n{middle}", show)
    assert await stall.stop() < MAX_STALL_SECONDS
    assert process.memory_info().rss - before < MAX_MEMORY_BYTES
    text = "".join(shown)
    assert text.startswith(f"{LINE}[secret KEY_7]\nsome")
    assert is_limited or text == f"{LINE}[secret KEY_7]\n{middle}[secret KEY_8]\n{middle}"


@rule("RS-71", "RS-66")
async def test_call_that_has_only_texts_is_not_masked() -> None:
    async with open_secrets(None, OWNER, UsedSecrets(texts=(("easel_1", "a note"),))) as opened:
        assert opened.env == {"easel_1": "a note"}
        assert opened.mask_output(print) is print
        result = {"output": "a note"}
        assert await opened.mask_value(result) is result


@rule("RS-66")
async def test_second_call_without_output_costs_nothing() -> None:
    await use("", print)
    started_at = time.process_time()
    for _ in range(10):
        await use("", print)
    # Building the index takes about half a second.
    assert time.process_time() - started_at < 0.5
