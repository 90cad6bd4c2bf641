"""Model servers and a fresh process: the first messages, and a server that sends too much."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.journeys.client import TERMINAL, Client
from tests.llm.vendors import VENDORS
from tests.llm.vendors.server import KEY, serve, to_event
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 100  # a long answer that finds no room is asked for five times, with waits of 15 s
MAX_EXTRA_MEGABYTES = 150
ARGUMENT_MEGABYTES = 27


async def choose(easel: EaselProcess, provider: str, base_url: str) -> None:
    model = {"provider": provider, "model": "some-model", "base_url": base_url, "api_key": KEY}
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {easel.token}"}) as http:
        (await http.put(f"{easel.base_url}/api/settings", json=model)).raise_for_status()


async def wait_until_all_ended(client: Client, runs: list[str]) -> list[dict[str, Any]]:
    for run in runs:
        await client.wait_for(run, TERMINAL, within=SECONDS)
    return [await client.run(run) for run in runs]


@pytest.mark.parametrize("provider", ["anthropic", "gemini", "openai-chat"])
async def test_test_and_first_messages_at_once_all_succeed_on_a_fresh_process(provider: str, tmp_path: Path):
    with serve(VENDORS[provider]()) as server, Launcher(tmp_path) as launcher:
        easel = launcher.up()
        await asyncio.to_thread(easel.wait_ready)
        await choose(easel, provider, server.base_url)
        async with Client(easel) as client:
            check = asyncio.create_task(client.post("/api/settings/check"))
            runs = [await client.start("Hi") for _ in range(2)]
            ended = await wait_until_all_ended(client, runs)
            await check
        assert [(run["status"], run.get("error_message")) for run in ended] == [("completed", None)] * 2


class Generous(BaseHTTPRequestHandler):
    """Answers with a tool call of 27 MB, or with a text that does not end. Speaks as Anthropic does."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        is_text = self.path.startswith("/text")
        kind = (
            {"type": "text", "text": ""}
            if is_text
            else {"type": "tool_use", "id": "a", "name": "b", "input": {}}
        )
        piece = "word " * 2_000
        delta = (
            {"type": "text_delta", "text": piece}
            if is_text
            else {"type": "input_json_delta", "partial_json": piece}
        )
        message = {"id": "m", "type": "message", "role": "assistant", "model": "some-model", "content": []}
        usage = {"input_tokens": 1, "output_tokens": 1}
        events = [
            {"type": "message_start", "message": {**message, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": kind},
            *[{"type": "content_block_delta", "index": 0, "delta": delta}]
            * (ARGUMENT_MEGABYTES * 2**20 // len(piece)),
        ]
        try:
            for event in events:
                self.wfile.write(to_event(json.dumps(event), event["type"]))
        except ConnectionError:
            pass

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Write no log."""


@pytest.fixture
def generous_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Generous)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def highest_megabytes(easel: EaselProcess) -> int:
    status = Path(f"/proc/{easel.pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.parametrize("kind", ["text", "arguments"])
async def test_four_hostile_answers_at_once_cost_little_memory(
    kind: str, generous_server: str, tmp_path: Path
):
    with serve(VENDORS["anthropic"]()) as honest, Launcher(tmp_path) as launcher:
        easel = launcher.up()
        await asyncio.to_thread(easel.wait_ready)
        async with Client(easel) as client:
            await choose(easel, "anthropic", honest.base_url)
            await wait_until_all_ended(client, [await client.start("Hi")])  # loads the library
            before = highest_megabytes(easel)
            await choose(easel, "anthropic", f"{generous_server}/{kind}")
            ended = await wait_until_all_ended(client, [await client.start("Hi") for _ in range(4)])
            extra = highest_megabytes(easel) - before
            assert {run["status"] for run in ended} == {"failed"}
            reasons = [run["error_message"] for run in ended]
            expected = "MB of text and calls", "too many long answers"
            assert not [reason for reason in reasons if not any(words in reason for words in expected)]
            assert extra < MAX_EXTRA_MEGABYTES
