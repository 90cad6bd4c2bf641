"""A scan for keys: twenty of them are set in every way, used and refused, and found nowhere.

A provider on this machine repeats every header of a request in its error, logs are at the level debug, and a
sandboxed command prints what it can see. At the end every byte that Easel wrote or answered is searched. The
same holds for twenty secrets of actions, in commands of the host and of a node in a process of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx2
import psutil
import pytest

from easel.assembly.storage import migrated_database
from easel.core.model.stored import EncryptedText
from easel.ids import OWNER
from easel.settings import Settings
from easel.stores.encryption import SecretBox
from tests.cli.commands import TIMEOUT_SECONDS, environment_of
from tests.journeys.client import call, new_session, say, script
from tests.requirements import case, rule
from tests.support.processes import EASEL, Launcher
from tests.support.strict_http import STRICT
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.processes import EaselProcess

pytestmark = pytest.mark.bwrap

PROVIDERS = ("openai-chat", "openai-responses", "gemini", "anthropic")
# Shapes that redaction knows, and shapes that it does not.
SHAPES = ("sk-{}", "AIza{}", "{}", "gateway/{}==", "Key.{}:x")
COUNT = 20


def new_keys() -> list[str]:
    return [SHAPES[n % len(SHAPES)].format(f"Leak{n:02}{secrets.token_hex(12)}") for n in range(COUNT)]


def core_of(key: str) -> str:
    """Return the part of a key to search for: a leak may cut or escape the rest."""
    start = key.index("Leak")
    return key[start : start + 20]


class EchoingProvider(BaseHTTPRequestHandler):
    """Refuses every request with the status in its path, and repeats its headers and address."""

    received: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.received.append(f"{self.path} {dict(self.headers)}")
        echo = f"you sent {self.path} with {dict(self.headers)}"
        body = json.dumps({"error": {"message": echo, "type": "x", "code": "x"}, "echo": echo}).encode()
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("content-type", "application/json")
        self.send_header("x-echo", self.headers.get("authorization", "none"))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextlib.contextmanager
def echoing_provider() -> Iterator[tuple[str, list[str]]]:
    received: list[str] = []
    handler = type("Handler", (EchoingProvider,), {"received": received})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class ArgumentWatch:
    """Collects the arguments of every process that the server starts, and its own."""

    pid: int
    seen: set[str] = field(default_factory=set[str])
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> ArgumentWatch:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            with contextlib.suppress(psutil.Error):
                server = psutil.Process(self.pid)
                for process in (server, *server.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        self.seen.add(" ".join(process.cmdline()))


@dataclass
class Outputs:
    """Everything that Easel answered or printed, by where it was read."""

    server: EaselProcess
    texts: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.http = httpx2.Client(
            base_url=self.server.base_url,
            headers={"Authorization": f"Bearer {self.server.token}"},
            timeout=60,
            event_hooks=STRICT,
        )

    def ask(self, method: str, path: str, status: int = 200, **how: Any) -> Any:
        answer = self.http.request(method, path, **how)
        assert answer.status_code == status, answer.text
        self.texts[f"{method} {path} {len(self.texts)}"] = f"{answer.text} {answer.headers}"
        return answer.json()

    def rpc(self, method: str, **params: Any) -> Any:
        """Call a method of the gateway. Returns its answer, also an error."""
        answer = self.http.post("/api/rpc", json={"method": method, "params": params})
        self.texts[f"{method} {len(self.texts)}"] = f"{answer.text} {answer.headers}"
        return answer.json()

    def run(self, message: str) -> str:
        """Run a message to its end. Returns its status, and keeps its events and messages."""
        session = new_session()
        started = self.ask("POST", "/api/runs", 202, json={"session_id": session, "message": message})
        run_id = started["run_id"]
        events = self.http.get(f"/api/runs/{run_id}/events?debug=1")
        self.texts[f"events of {run_id}"] = events.text
        self.ask("GET", f"/api/sessions/{session}/messages")
        return self.ask("GET", f"/api/runs/{run_id}")["status"]

    def command(self, *words: str, text: str = "", code: int = 0) -> None:
        done = subprocess.run(
            [*EASEL, *words],
            env=environment_of(
                TOKEN=self.server.token, PORT=self.server.base_url.rpartition(":")[2], LOG="debug"
            ),
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stderr
        self.texts[f"{' '.join(words)} {len(self.texts)}"] = done.stdout + done.stderr

    def read_audit(self) -> None:
        before = ""
        while True:
            page = self.ask("GET", f"/api/audit?limit=200{before}")
            if "next" not in page:
                return
            before = f"&before={page['next']}"


@rule("RX-54")
@case("P6")
def test_no_key_is_found_outside_of_its_encrypted_row(tmp_path: Path) -> None:
    keys = new_keys()
    by_request, by_command, refused = keys[3:13], keys[13:18], keys[18:]
    with echoing_provider() as (address, received), Launcher(tmp_path) as launcher:
        (server,) = launcher.ready(
            launcher.up(
                LOG="debug",
                PROVIDER="openai-chat",
                API_KEY=keys[0],
                BASE_URL=f"{address}/401/v1",
                SECRET_KEY=f"{keys[1]}-of-32-characters",
                OLD_SECRET_KEYS=f"{keys[2]}-of-32-characters",
                SLOW_SECONDS="0.001",
            )
        )
        outputs = Outputs(server)
        with ArgumentWatch(server.pid) as arguments:
            use_keys(outputs, address, by_request, by_command, refused)
            outputs.ask("PUT", "/api/settings", json={"provider": "scripted"})
            seen = outputs.run(script(call("local__Bash", command=looking_around(tmp_path)), say("done")))
            assert seen == "completed"
            outputs.read_audit()
            outputs.texts["metrics"] = outputs.http.get("/metrics").text
            outputs.texts["home page"] = outputs.http.get("/").text
            wait_for_sync(lambda: any("bwrap" in line for line in arguments.seen), what="a command was seen")
        outputs.http.close()
        server.terminate(within=30)
        stored = read_stored_key(tmp_path, f"{keys[1]}-of-32-characters")

    # The scan means something: the keys were used, and the last one is stored.
    for key in (keys[0], *by_request, *by_command):
        assert any(key in request for request in received), f"{key} was not sent to the provider"
    assert stored == by_command[-1]
    places = {
        **outputs.texts,
        "arguments of processes": "\n".join(arguments.seen),
        **{str(path.relative_to(tmp_path)): path.read_bytes().decode("latin-1") for path in files(tmp_path)},
    }
    assert any("easel.db" in place for place in places)
    environment = [place for place in find("PATH=/", places) if place.startswith(("events of", "data"))]
    assert environment, "the command printed its environment"
    found = [f"key {n} in {place}" for n, key in enumerate(keys) for place in find(core_of(key), places)]
    assert found == []


def use_keys(
    outputs: Outputs, address: str, by_request: list[str], by_command: list[str], refused: list[str]
) -> None:
    """Set each key, and use it in a run whose provider repeats it in its error."""
    assert outputs.run("the key of the host") == "failed"
    for number, key in enumerate(by_request):
        provider, status = PROVIDERS[number % 4], (401, 400, 403, 404)[number // 4]
        changes = {"provider": provider, "api_key": key, "base_url": f"{address}/{status}/v1"}
        outputs.ask("PUT", "/api/settings", json=changes)
        assert outputs.run("a key of the user") == "failed"
        assert not outputs.ask("POST", "/api/settings/check")["ok"]
    for number, key in enumerate(by_command):
        changes = {"provider": PROVIDERS[number % 4], "base_url": f"{address}/401/v1"}
        outputs.ask("PUT", "/api/settings", json=changes)
        outputs.command("settings", "set", "api_key", text=f"{key}\n")
        assert outputs.run("a key of the command line") == "failed"
    outputs.command("settings", "get")
    outputs.command("doctor", code=1)
    outputs.ask("PUT", "/api/settings", 400, json={"api_key": f"{refused[0]} with a space"})
    outputs.ask("PUT", "/api/settings", 400, json={"base_url": f"http://me:{refused[1]}@127.0.0.1"})


def looking_around(folder: Path) -> str:
    """Return a command that prints its environment, the processes and the data folder, if it can see them."""
    return (
        "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; "
        f"cat {folder}/*/secret-key {folder}/*/easel.db {folder}/*.log; true"
    )


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def find(word: str, places: dict[str, str]) -> list[str]:
    return [place for place, text in places.items() if word in text]


def read_stored_key(folder: Path, secret_key: str) -> str:
    """Return the stored key, decrypted."""
    [database] = folder.rglob("easel.db")
    settings = Settings(data=str(database.parent))

    async def read() -> str:
        async with migrated_database(settings) as opened:
            secret = (await opened.settings.read(OWNER))["api_key"]
        assert isinstance(secret, EncryptedText)
        return json.loads(SecretBox(secret_key).decrypt(OWNER, "api_key", secret))["key"]

    return asyncio.run(read())


# --- secrets of actions -------------------------------------------------------------------------------------

NODE = "laptop"
# Prints the variable KEY in several forms, and so often that live output and result are cut inside of it.
PRINT = (
    'printf "%s\\n" "$KEY"; printf %s "$KEY" | base64; declare -p KEY; export -p; env; '
    'cat /proc/*/environ /proc/*/cmdline | tr "\\0" "\\n"; '
    'for n in $(seq 2100); do echo "$n.$KEY"; done; echo "$KEY" >&2; exit 3'
)
# Stops in the middle of a secret, at the time limit or by a cancel.
HANG = 'printf %s "$KEY"; printf %s "${KEY:0:12}"; sleep 60'


def actions_of(names: list[str]) -> dict[str, Any]:
    """Return actions that use the secrets in turn, on this machine and on the node."""
    actions: dict[str, Any] = {}
    for number, name in enumerate(names):
        place = ("local", NODE)[number % 2]
        command = (PRINT, HANG)[number >= len(names) - 2].replace("KEY", name)
        actions[f"env-{name}"] = {
            "kind": "tool.call",
            "tool": f"{place}__Bash",
            "secrets": [name],
            "args": {"command": command},
            "confirm": "never",
            "saveAs": f"state.{name}",
            "timeoutMs": 1_500 if command.startswith("printf %s") else 60_000,
        }
        actions[f"arg-{name}"] = {
            "kind": "tool.call",
            "tool": f"{place}__Read",
            "args": {"path": {"$secret": name}},
        }
    return actions


@rule("RS-66")
@case("P6")
def test_no_secret_of_an_action_is_found_outside_of_its_encrypted_row(tmp_path: Path) -> None:
    values = {f"S{n:02}": key for n, key in enumerate(new_keys())}
    names = list(values)
    data = tmp_path / "easel"
    root = tmp_path / "root"
    root.mkdir()
    with Launcher(data) as launcher:
        (server,) = launcher.ready(launcher.up(LOG="debug", PROVIDER="scripted", SLOW_SECONDS="0.001"))
        url = f"ws{server.base_url.removeprefix('http')}/ws"
        command = (*EASEL, "node", "--id", NODE, "--url", url, "--root", str(root), "--sandbox", "bwrap")
        node = launcher.start("node", command, {"LOG": "debug"})
        outputs = Outputs(server)
        wait_for_sync(lambda: f"{NODE}__Bash" in outputs.http.get("/api/tools").text, what="the node")
        with ArgumentWatch(server.pid) as arguments, ArgumentWatch(node.pid) as of_node:
            for name, value in values.items():
                if name < "S15":
                    answer = outputs.http.put(f"/api/secrets/{name}", json={"value": value})
                    assert answer.status_code == 204, answer.text
                else:
                    outputs.command("secret", "set", name, text=f"{value}\n")
            outcomes = use_secrets(outputs, names)
            seen = outputs.run(script(call("local__Bash", command=looking_around(data)), say("done")))
            assert seen == "completed"
            outputs.command("secret", "list")
            outputs.command("canvas", "export", "scan", str(data / "exported"))
            outputs.read_audit()
            outputs.texts["metrics"] = outputs.http.get("/metrics").text
            outputs.texts["page"] = outputs.http.get("/canvas/main/scan").text
        outputs.http.close()
        server.terminate(within=30)

    # The scan means something: every secret was in the environment of a command, and its output was cut.
    for name in names:
        assert f"[secret {name}]" in outcomes[f"env-{name}"], outcomes[f"env-{name}"][:300]
        assert f"[secret {name}]" in outcomes[f"arg-{name}"], outcomes[f"arg-{name}"][:300]
    assert "bytes left out] …" in outcomes["env-S00"]
    places = {
        **outputs.texts,
        "arguments of processes": "\n".join(arguments.seen | of_node.seen),
        **{str(path.relative_to(tmp_path)): path.read_bytes().decode("latin-1") for path in files(tmp_path)},
    }
    assert any("exported" in place for place in places)
    found = [
        f"{name} in {place}: {text[text.find(form) - 60 : text.find(form) + 60]!r}"
        for name, value in values.items()
        for form in fragments(value)
        for place, text in places.items()
        if form in text
    ]
    assert found == []


def use_secrets(outputs: Outputs, names: list[str]) -> dict[str, str]:
    """Run every action. Returns the outcome of each as text, with the live output of those that end early."""
    actions, canvas = actions_of(names), {"canvasId": "scan"}
    tools = sorted({action["tool"] for action in actions.values()})
    spec = {"toolPolicy": {"allow": tools, "secrets": names}, "actions": actions, "state": {}}
    outputs.rpc("canvas.create", **canvas, spec=spec)
    outcomes: dict[str, str] = {}
    for action in actions:
        request = {**canvas, "actionId": action, "requestId": f"first-{action}"}
        answer: Any = {}
        for _ in range(2):  # the second time it is a replay
            answer = outputs.rpc("canvas.action", **request)
            if answer.get("status") == "needs_confirmation":
                answer = outputs.rpc("canvas.confirm", confirmationId=answer["confirmationId"], approve=True)
        outcomes[action] = json.dumps(answer, ensure_ascii=False)
        if "error" in answer and action.startswith("env-"):
            log = outputs.rpc("tool.invoke", tool="gsv__LogsGet", args={**canvas, "limit": 8})
            outcomes[action] += json.dumps(log, ensure_ascii=False)
    outputs.rpc("canvas.get", **canvas)
    outputs.rpc("canvas.records", **canvas)
    outputs.rpc("tool.invoke", tool="gsv__LogsGet", args={**canvas, "limit": 1_000})
    return outcomes


def fragments(value: str) -> list[str]:
    """Return every piece of 12 characters of the random part of a key, and its Base64."""
    start = value.index("Leak")
    core = value[start : start + 30]
    encoded = base64.b64encode(core.encode()).decode()[:36]
    return [encoded, *(core[n : n + 12] for n in range(len(core) - 11))]
