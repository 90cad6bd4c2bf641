"""The tour of the README and the agent's canvas of the guide work as written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from tests.docs_tables import PROJECT, README, machine_tools, native_definitions
from tests.support.curl import parse_curl
from tests.support.processes import EaselProcess, Launcher
from tests.test_docs import FENCED

if TYPE_CHECKING:
    from pathlib import Path


def tour_commands() -> list[str]:
    section = README.read_text(encoding="utf-8").partition("## A tour with curl")[2]
    block = FENCED.search(section)
    assert block
    return [line for line in block[0].splitlines() if "curl" in line]


def run_agent_script(http: httpx2.Client, server: EaselProcess) -> tuple[bool, str]:
    """Run the agent's script of the guide. Returns whether its canvas is accepted, and its note."""
    section = (
        (PROJECT / "docs/guide/canvases.md").read_text(encoding="utf-8").partition("## An agent makes one")[2]
    )
    script = section.partition("```json\n")[2].partition("\n```")[0]
    headers = {"Authorization": f"Bearer {server.token}"}
    run = http.post(
        f"{server.base_url}/api/runs", headers=headers, json={"session_id": "agent", "message": script}
    ).json()["run_id"]
    assert (
        '"status":"completed"' in http.get(f"{server.base_url}/api/runs/{run}/events", headers=headers).text
    )
    request = {"method": "canvas.get", "params": {"canvasId": "clock"}}
    canvas = http.post(f"{server.base_url}/api/rpc", headers=headers, json=request).json()
    return canvas["accepted"], canvas["state"]["note"]


def test_tour_of_the_readme_works_as_written(tmp_path: Path) -> None:
    start, watch, resume, cancel, listing = tour_commands()
    with Launcher(tmp_path) as launcher, httpx2.Client(timeout=20, trust_env=False) as http:
        [server] = launcher.ready(launcher.up())
        variables = {"AUTH": f"Authorization: Bearer {server.token}", "URL": server.base_url}

        def send(line: str) -> httpx2.Response:
            request = parse_curl(line, **variables)
            return http.request(request.method, request.url, headers=request.headers, content=request.body)

        def first_ids(line: str, count: int) -> list[int]:
            request, ids = parse_curl(line, **variables), list[int]()
            with http.stream(request.method, request.url, headers=request.headers) as stream:
                assert stream.status_code == 200
                for text in stream.iter_lines():
                    ids += [int(text.removeprefix("id: "))] if text.startswith("id: ") else []
                    if len(ids) == count:
                        break
            return ids

        listed_tools = http.get(
            f"{server.base_url}/api/tools", headers={"Authorization": f"Bearer {server.token}"}
        ).json()["tools"]
        assert {tool["name"] for tool in listed_tools} <= {
            tool.name for tool in (*native_definitions(), *machine_tools())
        }
        assert run_agent_script(http, server) == (False, "Made by an agent.")
        started = send(start)
        assert started.status_code == 202
        variables["RUN"] = started.text.split('"')[3]  # like `cut -d'"' -f4`
        assert started.json() == {"run_id": variables["RUN"], "status": "queued"}
        assert first_ids(watch, 3) == [1, 2, 3]
        assert first_ids(resume, 2) == [4, 5]
        cancelled = send(cancel)
        assert (cancelled.status_code, cancelled.json()["status"]) == (202, "running")
        assert first_ids(watch, 10_000)[-1] > 5
        [listed] = send(listing).json()["runs"]
        assert (listed["run_id"], listed["status"]) == (variables["RUN"], "cancelled")
