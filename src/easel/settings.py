"""Every setting, one row each: its name, default and what it does.

A row is read from `EASEL_<NAME>`, listed by `easel settings` and in docs/reference/settings.md. Values are handed down
as a frozen `Settings`; nothing else in Easel reads the environment.
"""

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from easel.errors import BadSettings

PREFIX = "EASEL_"
MIN_TOKEN_LENGTH = (
    16  # characters of the owner's token: a shorter one can be tried out by whoever reaches the port
)
OPTIONS = {"sandbox_mode": "--sandbox"}  # of a command; others have the name of their setting


def _row(
    default: Any,
    description: str,
    *,
    least: float | None = None,
    most: float | None = None,
    one_of: Sequence[str] = (),
    secret: bool = False,
) -> Any:
    bounds = {"least": least, "most": most, "one_of": one_of}
    return field(
        default=default, repr=not secret, metadata={"description": description, "secret": secret, **bounds}
    )


def _default_data() -> str:
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return str(Path(base) / "easel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    # where it listens and what it keeps
    host: str = _row("127.0.0.1", "Address to listen on.")
    port: int = _row(8800, "Port to listen on; 0 picks a free one.", least=0, most=65535)
    data: str = _row(
        "", "Data folder: the SQLite database, blobs, the owner's token. Empty: the user's data folder."
    )
    database_url: str = _row(
        "", "postgresql://… for several processes; empty: SQLite in the data folder.", secret=True
    )
    blob_url: str = _row(
        "", "Where artifacts are kept: a folder or s3://bucket/prefix; empty: `blobs` in the data folder."
    )
    token: str = _row(
        "", "The owner's token; empty: one is made at first start and kept in DATA/owner-token.", secret=True
    )
    public_url: str = _row(
        "", "The address people use when a proxy stands in front, such as https://easel.example.org."
    )
    assets_url: str = _row(
        "",
        "A second address of this server, of another host name, for the pages of canvases alone; empty: the same host.",
    )
    allowed_hosts: str = _row(
        "", "More host names this server answers for, separated by commas; * allows any."
    )
    open_metrics: bool = _row(False, "Serve /metrics without a token.")
    log: str = _row(
        "info", "What is logged and how: debug, info, warning or error, with `,json` for JSON lines."
    )
    slow_seconds: float = _row(
        5.0, "A request or an append that takes longer is noted in the audit trail.", least=0.001
    )
    # runs and workers
    claim_seconds: float = _row(
        15.0,
        "How long a worker holds a run without renewing; a dead worker's runs move on after it.",
        least=0.2,
    )
    poll_seconds: float = _row(1.0, "How often to look for what a lost bell did not tell.", least=0.05)
    prefer_worker_seconds: float = _row(
        0.1,
        "How long a run is left to the worker that its session had last; 0: whoever is first takes it.",
        least=0,
        most=60,
    )
    worker_runs: int = _row(96, "Runs that one worker executes at once.", least=1, most=10_000)
    worker_port: int = _row(
        0, "Port of a worker's own /healthz, /readyz and /metrics; 0: none.", least=0, most=65535
    )
    drain_seconds: float = _row(
        5.0, "How long a stopping worker lets steps end before it hands its runs back.", least=0
    )
    max_attempts: int = _row(3, "How often a run is tried when its worker is lost.", least=1, most=100)
    max_steps: int = _row(24, "Model calls in one run before it is ended.", least=1)
    refresh_unwatched: bool = _row(True, "Whether refresh jobs of a canvas run while nobody looks at it.")
    max_refreshes: int = _row(50, "Refresh jobs that one instance runs at once.", least=1)
    max_actions: int = _row(200, "Actions of canvases that one instance carries out at once.", least=1)
    max_live_output_bytes: int = _row(
        65_536,
        "What a tool says while an action runs, as far as it is shown to whoever watches the canvas; 0: none of it.",
        least=0,
    )
    confirm_seconds: float = _row(
        900.0, "How long a person has to confirm an action after it was asked for.", least=1
    )
    approval_mode: str = _row(
        "full-access",
        "What a person is asked about: minimal (every action), trusted (every call of a tool that is not read-only) or full-access"
        " (as each action declares it).",
        one_of=("minimal", "trusted", "full-access"),
    )
    max_confirmations: int = _row(
        20, "Actions of one canvas that may wait for a person's consent at once; more get 429.", least=1
    )
    run_timeout_seconds: float = _row(3600.0, "How long a run may take, over all its attempts.", least=0.1)
    tool_timeout_seconds: float = _row(600.0, "How long one tool call may take.", least=0.1)
    retention_days: float = _row(
        0.0,
        "Days that the log of a finished run is kept whole, and events and records of actions of a canvas; 0: for ever. What is older goes"
        " within a minute, from the log of a canvas within an hour.",
        least=0,
    )
    # streams
    header_timeout_seconds: float = _row(
        30.0, "How long a client may take for a request's head, or between two pieces of its body.", least=0.5
    )
    heartbeat_seconds: float = _row(15.0, "A quiet stream gets a comment this often.", least=0.1)
    stall_seconds: float = _row(
        20.0, "A reader that takes nothing for this long is cut; it resumes by its cursor.", least=0.5
    )
    max_streams: int = _row(10_000, "Open streams of one instance; as many connections to /ws.", least=1)
    tail_window: int = _row(
        1_000, "Newest events of a watched log kept in memory for its viewers.", least=100
    )
    # the gateway
    gateway_requests: int = _row(
        32, "Requests that one connection to /ws may have under way at once.", least=1, most=10_000
    )
    gateway_subscriptions: int = _row(
        200, "Canvases that one connection to /ws may watch at once.", least=1, most=100_000
    )
    gateway_connect_seconds: float = _row(
        10.0, "How long a connection to /ws may take to send its `connect`.", least=0.1
    )
    view_token_seconds: float = _row(
        43_200.0, "How long the address of a canvas's page works before it has to be opened anew.", least=1
    )
    node_ttl_seconds: float = _row(
        6.0, "How long a tool node is believed in when its instance is not heard of.", least=0.3
    )
    node_heartbeat_seconds: float = _row(
        5.0,
        "A tool node is asked this often whether it is there, and is gone if it does not say so for as long.",
        least=0.1,
    )
    node_calls: int = _row(64, "Calls that one tool node may have under way at once.", least=1, most=10_000)
    max_nodes: int = _row(100, "Tool nodes of one user that may be connected at once.", least=1)
    max_node_tools: int = _row(200, "Tools that one node may offer.", least=1)
    max_tool_bytes: int = _row(65_536, "Largest definition of one tool that a node offers.", least=256)
    view_ttl_seconds: float = _row(
        60.0, "How long an open view is believed in when its instance is not heard of.", least=1
    )
    # commands, and the files that they work on
    profile: str = _row(
        "dev-local",
        "What this instance is for: dev-local, or prod, where Bash is off.",
        one_of=("dev-local", "prod"),
    )
    bash: str = _row(
        "auto", "The tool Bash: auto (on, but not in prod), on or off.", one_of=("auto", "on", "off")
    )
    sandbox_mode: str = _row(
        "",
        "How commands are isolated: bwrap or logical (not at all); empty: bwrap where it works, else no Bash.",
    )
    sandbox_root: str = _row(
        "", "The folder that has a folder for every session; empty: `sandbox` in the data folder."
    )
    sandbox_ttl_seconds: float = _row(
        604_800.0, "A session's folder is removed when it was not used for this long; 0: never.", least=0
    )
    sandbox_network: str = _row(
        "disabled", "Whether commands reach the network: disabled or enabled.", one_of=("disabled", "enabled")
    )
    sandbox_cpu_limit: float = _row(
        600.0, "Seconds of CPU time that one command may use, all its processes together.", least=1
    )
    sandbox_memory_limit_mb: int = _row(
        1_024, "Memory that one command may use, all its processes together, in MB.", least=32
    )
    sandbox_processes: int = _row(
        128, "Processes and threads that one command may have at once.", least=8, most=30_000
    )
    sandbox_output_bytes: int = _row(
        10_485_760, "What one command may print before it is stopped.", least=1_024
    )
    sandbox_file_limit_mb: int = _row(1_024, "Largest file that a command may write, in MB.", least=1)
    sandbox_free_mb: int = _row(500, "Space that commands have to leave free on the disk, in MB.", least=0)
    sandbox_uid: int = _row(
        64_321,
        "Where Easel runs as root: the user that commands are on this machine.",
        least=1,
        most=4_294_967_293,
    )
    # limits
    max_body_bytes: int = _row(
        8_388_608, "Largest request body: an asset of EASEL_MAX_ASSET_BYTES as Base64 fits in.", least=1_024
    )
    max_frame_bytes: int = _row(
        1_048_576, "Largest frame of a WebSocket; a larger one closes the connection with 1009.", least=1_024
    )
    max_message_bytes: int = _row(262_144, "Largest message that starts a run.", least=16)
    max_result_bytes: int = _row(
        262_144, "Largest result of a tool; more is refused and the model is told.", least=1_024
    )
    max_board_bytes: int = _row(262_144, "Largest value on a board.", least=1)
    max_board_keys: int = _row(1_000, "Keys on the boards of one run.", least=1)
    max_board_total_bytes: int = _row(16_777_216, "All values on the boards of one run together.", least=1)
    max_artifact_bytes: int = _row(104_857_600, "Largest artifact that can be uploaded.", least=1_024)
    max_state_bytes: int = _row(1_048_576, "Largest state of a canvas.", least=1_024)
    max_spec_bytes: int = _row(524_288, "Largest spec of a canvas, without its state.", least=1_024)
    max_canvas_actions: int = _row(500, "Actions that one canvas declares.", least=1)
    max_canvas_bindings: int = _row(1_000, "Bindings that one canvas declares.", least=1)
    max_canvas_refreshes: int = _row(50, "Refresh jobs that one canvas declares.", least=0)
    max_canvas_tools: int = _row(500, "Tools that one canvas may allow.", least=1)
    max_asset_bytes: int = _row(5_242_880, "Largest asset of a canvas.", least=1_024)
    max_canvas_assets: int = _row(500, "Assets of one canvas.", least=1)
    artifact_days: float = _row(7.0, "Days that an artifact is kept which nothing refers to.", least=0.05)
    # database
    database_pool: int = _row(
        8, "Postgres connections of one process, beside the bell's.", least=1, most=1_000
    )
    database_timeout_seconds: float = _row(
        8.0, "How long one statement may take before the connection counts as lost.", least=0.5
    )
    sqlite_synchronous: str = _row(
        "full",
        "SQLite durability: full, or normal (faster; a power cut may lose the last moments).",
        one_of=("full", "normal"),
    )

    @property
    def data_folder(self) -> Path:
        return Path(self.data or _default_data()).expanduser()

    @property
    def sandbox_folder(self) -> Path:
        return Path(self.sandbox_root).expanduser() if self.sandbox_root else self.data_folder / "sandbox"

    @property
    def on_postgres(self) -> bool:
        return bool(self.database_url)

    @property
    def has_weak_token(self) -> bool:
        return 0 < len(self.token) < MIN_TOKEN_LENGTH


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    variable: str
    default: Any
    description: str
    secret: bool


def rows() -> list[Row]:
    return [
        Row(f.name, PREFIX + f.name.upper(), f.default, f.metadata["description"], f.metadata["secret"])
        for f in fields(Settings)
    ]


def load(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Settings from the environment; `given` (a command's options) wins where it is not None."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for f in fields(Settings):
        said_by, text = OPTIONS.get(f.name, f"--{f.name}"), given.get(f.name)
        if text is None:
            said_by = PREFIX + f.name.upper()
            text = environment.get(said_by)
        if text is None or text == "":
            continue
        values[f.name] = _checked(said_by, str(text).strip(), f.default, f.metadata)
    settings = Settings(**values)
    _check_address("EASEL_PUBLIC_URL", settings.public_url)
    _check_address("EASEL_ASSETS_URL", settings.assets_url)
    if settings.assets_url and not settings.public_url:
        raise BadSettings(
            problem="EASEL_ASSETS_URL needs EASEL_PUBLIC_URL too: its pages are shown there and nowhere else."
        )
    return settings


def _check_address(variable: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        fits = not url or (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/")
        )
    except ValueError:
        fits = False
    if not fits:
        raise BadSettings(
            problem=f"{variable} is an address such as https://easel.example.org, without a path."
        )


def unknown_variables(environment: Mapping[str, str] | None = None) -> list[str]:
    """Variables with our prefix that no row reads: most often a slip of the pen."""
    environment = os.environ if environment is None else environment
    known = {row.variable for row in rows()}
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


def nearest(unknown: str) -> str | None:
    """The setting that was meant, as far as one can guess."""
    known = [row.variable.removeprefix(PREFIX) for row in rows()]
    found = difflib.get_close_matches(unknown.removeprefix(PREFIX).upper(), known, n=1, cutoff=0.65)
    return PREFIX + found[0] if found else None


def _checked(said_by: str, text: str, default: Any, metadata: Mapping[str, Any]) -> Any:
    kind = cast("type[object]", type(default))
    try:
        if kind is bool:
            return {
                "1": True,
                "true": True,
                "yes": True,
                "on": True,
                "0": False,
                "false": False,
                "no": False,
                "off": False,
            }[text.lower()]
        value = int(text) if kind is int else float(text) if kind is float else text
    except (ValueError, KeyError):
        wants = {"bool": "yes or no", "int": "a whole number", "float": "a number"}[kind.__name__]
        shown = "that is not" if metadata["secret"] else f"{text!r} is not"
        raise BadSettings(problem=f"{said_by} takes {wants}; {shown}.") from None
    if metadata["one_of"] and value not in metadata["one_of"]:
        raise BadSettings(
            problem=f"{said_by} is {value!r}; it is {' or '.join(f'`{one}`' for one in metadata['one_of'])}."
        )
    least, most = metadata["least"], metadata["most"]
    if isinstance(value, (int, float)):
        if isinstance(value, float) and not math.isfinite(value):
            raise BadSettings(problem=f"{said_by} takes a finite number.")
        if least is not None and not value >= least:
            raise BadSettings(problem=f"{said_by} is {value}; the least is {least}.")
        if most is not None and value > most:
            raise BadSettings(problem=f"{said_by} is {value}; the most is {most}.")
    return value
