"""Every setting, one row each: name, default, description and bounds.

A row is read from `EASEL_<NAME>` and listed by `easel settings` and docs/reference/settings.md. The values
are passed down as a frozen `Settings`; no other module reads the environment.
"""

import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from easel.core.account_limits import AccountLimits, describe_defaults, parse_limits
from easel.core.canvas import versions
from easel.core.model.choice import REASONING_EFFORTS, Provider
from easel.core.model.settings import DEFAULT_TOKEN_BUDGET, MAX_TOKEN_BUDGET, MIN_TOKEN_BUDGET
from easel.core.oauth.provider import OAuthProvider
from easel.core.openid.provider import OpenIdProvider
from easel.core.validation import find_nearest
from easel.core.web.hosts import parse_hosts, parse_networks
from easel.errors import BadInput, BadSettings
from easel.settings_oauth import check_profile, is_of_family, read_providers, refuse_without_key
from easel.settings_openid import read_openid
from easel.settings_values import check_address, check_model, parse_value
from easel.settings_values import new_row as _row

PREFIX = "EASEL_"
MIN_TOKEN_LENGTH = 16  # a shorter owner's token can be guessed
MIN_KEY_LENGTH = 32
OPTIONS = {"sandbox_mode": "--sandbox"}  # options of commands that are not named after their setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    # addresses and data
    host: str = _row("127.0.0.1", "Address to listen on.")
    port: int = _row(8800, "Port to listen on; 0 picks a free one.", minimum=0, maximum=65535)
    data: str = _row(
        "", "Data folder: the SQLite database, blobs, the owner's token. Empty: the user's data folder."
    )
    database_url: str = _row(
        "", "postgresql://… for several processes; empty: SQLite in the data folder.", secret=True
    )
    blob_url: str = _row(
        "", "Where artifacts are stored: a folder or s3://bucket/prefix; empty: `blobs` in the data folder."
    )
    token: str = _row(
        "",
        "The owner's token; empty: generated at the first start and stored in DATA/owner-token.",
        secret=True,
    )
    secret_key: str = _row(
        "",
        "Key that signs cookies and the addresses of canvas pages and encrypts stored API keys, at least 32 "
        "characters, the same on every instance; empty: a generated key in the database signs, and one in "
        "DATA/secret-key encrypts. With Postgres, storing an API key needs it.",
        secret=True,
    )
    old_secret_keys: str = _row(
        "",
        "Earlier values of EASEL_SECRET_KEY, separated by commas: stored API keys are still read with them.",
        secret=True,
    )
    sign_in_failures: int = _row(
        10,
        "Wrong tokens of one address that are free; then each one doubles the wait for the next, up to 60 s.",
        minimum=1,
    )
    # sign-in by OpenID Connect
    oidc_issuer: str = _row(
        "", "Issuer of the OpenID provider by which people sign in, exactly as it writes it; empty: none."
    )
    oidc_client_id: str = _row("", "The id of Easel's client at the OpenID provider.")
    oidc_client_secret: str = _row("", "The secret of this client; empty: a public client.", secret=True)
    oidc_allowed: str = _row(
        "",
        "Verified e-mail addresses of new persons who need no invitation: domains such as @example.com and "
        "addresses, separated by commas; empty: none.",
    )
    oidc_teams_claim: str = _row(
        "",
        "Claim of the ID token that lists teams with roles, such as devs:member; applied at each sign-in. "
        "Empty: none.",
    )
    public_url: str = _row("", "Public address if a proxy is in front, such as https://easel.example.org.")
    assets_url: str = _row(
        "",
        "Second address of this server, with another host name, for canvas pages only; empty: the same host.",
    )
    trusted_proxies: str = _row(
        "", "Addresses of proxies that name the client in X-Forwarded-For, such as 10.0.0.0/8; empty: none."
    )
    allowed_hosts: str = _row(
        "", "Additional host names that this server accepts, separated by commas; * allows any."
    )
    open_metrics: bool = _row(False, "Serve /metrics without a token.")
    log: str = _row("info", "Log level: debug, info, warning or error; append `,json` for JSON lines.")
    slow_seconds: float = _row(
        5.0, "Requests and appends that take longer are recorded in the audit trail.", minimum=0.001
    )
    # the model of users who have set none of their own
    provider: str = _row(
        "",
        f"Provider of the model: {', '.join(Provider)}; empty: scripted, which needs no key.",
    )
    model: str = _row("", "Name of the model; empty: Easel's default for the provider.")
    api_key: str = _row("", "API key for the provider.", secret=True)
    base_url: str = _row(
        "",
        "Address of another server that speaks the provider's protocol, such as http://127.0.0.1:11434/v1; "
        "empty: the provider's own.",
    )
    reasoning_effort: str = _row(
        "",
        f"How much the model reasons: {', '.join(REASONING_EFFORTS)}; empty: the model's default.",
        one_of=REASONING_EFFORTS,
    )
    token_budget: int = _row(
        DEFAULT_TOKEN_BUDGET,
        "Tokens of the conversation that a model call is given.",
        minimum=MIN_TOKEN_BUDGET,
        maximum=MAX_TOKEN_BUDGET,
    )
    # runs and workers
    claim_seconds: float = _row(
        15.0,
        "Seconds until a claim expires that is not renewed; the runs of a crashed worker are adopted then.",
        minimum=0.2,
    )
    poll_seconds: float = _row(1.0, "Poll interval for changes whose notification was lost.", minimum=0.05)
    prefer_worker_seconds: float = _row(
        0.1,
        "Seconds that a run is reserved for the worker that ran its session last; 0: any worker takes it.",
        minimum=0,
        maximum=60,
    )
    worker_runs: int = _row(96, "Runs that one worker executes concurrently.", minimum=1, maximum=10_000)
    worker_port: int = _row(
        0, "Port for /healthz, /readyz and /metrics of a worker; 0: none.", minimum=0, maximum=65535
    )
    drain_seconds: float = _row(
        5.0, "Seconds that a stopping worker waits for running steps before it releases its runs.", minimum=0
    )
    max_attempts: int = _row(3, "Attempts of a run if its worker is lost.", minimum=1, maximum=100)
    max_steps: int = _row(24, "Maximum number of model calls in one run.", minimum=1)
    max_rejected_patches: int = _row(3, "Patches rejected in a row that end a run.", minimum=1)
    run_token_budget: int = _row(
        0, "Tokens, in and out, of all model calls of one run, which then ends; 0: no limit.", minimum=0
    )
    step_lease_seconds: float = _row(
        120.0,
        "Seconds that a request to a model keeps the lease of a document, without any part of the answer.",
        minimum=0,
    )
    max_context_result_bytes: int = _row(
        32_768,
        "Largest tool result that a model is given whole; of a larger one it gets the beginning and a note.",
        minimum=1_024,
    )
    refresh_unwatched: bool = _row(True, "Whether refresh jobs run while no view of their canvas is open.")
    max_actions: int = _row(200, "Canvas actions that one instance runs concurrently.", minimum=1)
    confirm_seconds: float = _row(900.0, "Seconds in which an action can be confirmed.", minimum=1)
    approval_seconds: float = _row(
        86_400.0, "Seconds in which another person can approve an action that needs one.", minimum=1
    )
    approval_by: str = _row(
        "anyone",
        "Who may approve an action in a team that has not set `approval_by`: anyone, or only another member "
        "than the one who asked for it.",
        one_of=("anyone", "another"),
    )
    private_base_urls: bool = _row(
        False,
        "Whether persons and teams may set a private or loopback address of a model server. Operators may in "
        "their own account.",
    )
    approval_mode: str = _row(
        "full-access",
        "Which actions need confirmation: minimal (every action), trusted (every call of a tool that is not "
        "read-only) or full-access (as each action declares).",
        one_of=("minimal", "trusted", "full-access"),
    )
    run_timeout_seconds: float = _row(3600.0, "Maximum duration of a run, over all attempts.", minimum=0.1)
    tool_timeout_seconds: float = _row(600.0, "Maximum duration of one tool call.", minimum=0.1)
    retention_days: float = _row(
        0.0,
        "Days to keep the logs of finished runs and the events and action records of canvases; 0: forever. "
        "Older ones are deleted within a minute, events of a canvas within an hour.",
        minimum=0,
    )
    audit_days: float = _row(
        0.0,
        "Days to keep audit records; 0: forever. Older ones are removed from the start of the chain within "
        "an hour, up to a signed checkpoint.",
        minimum=0,
    )
    # streams
    heartbeat_seconds: float = _row(15.0, "Interval of the comments on an idle stream.", minimum=0.1)
    stall_seconds: float = _row(
        20.0,
        "A client that reads nothing for this long is disconnected; it resumes with its cursor.",
        minimum=0.5,
    )
    max_streams: int = _row(
        10_000, "Open streams of one instance, and as many connections to /ws.", minimum=1
    )
    tail_bytes: int = _row(
        32 * 2**20,
        "Memory of one instance for the events of all watched logs; viewers behind read the rest again.",
        minimum=2**20,
    )
    # views and nodes
    node_ttl_seconds: float = _row(
        6.0,
        "Seconds until a tool node is considered offline after its instance stops renewing it.",
        minimum=0.3,
    )
    # documents
    canvas_tools: bool = _row(True, "Whether agents have tools to edit documents.")
    canvas_leases: bool = _row(True, "Whether a read and a patch of these tools need the document's lease.")
    canvas_inspection: str = _row(
        "enforce",
        "Edits of lines that were not read: enforce (rejected) or advise.",
        one_of=("enforce", "advise"),
    )
    document_store: str = _row(
        "database",
        "Documents in the database, or git: agents have no tools for them.",
        one_of=("database", "git"),
    )
    # the sandbox
    profile: str = _row(
        "dev-local",
        "Profile: dev-local, or prod, which turns Bash off by default and lets OAuth providers call back the "
        "https address EASEL_PUBLIC_URL only.",
        one_of=("dev-local", "prod"),
    )
    bash: str = _row(
        "auto", "The Bash tool: auto (on, but off in prod), on or off.", one_of=("auto", "on", "off")
    )
    sandbox_mode: str = _row(
        "",
        "How commands are isolated: bwrap or logical (no isolation); empty: bwrap if it works, else no Bash.",
    )
    sandbox_root: str = _row("", "Folder for the folders of sessions; empty: `sandbox` in the data folder.")
    sandbox_ttl_seconds: float = _row(
        604_800.0, "A session's folder is deleted after it was unused for this long; 0: never.", minimum=0
    )
    sandbox_network: str = _row(
        "disabled", "Network access of commands: disabled or enabled.", one_of=("disabled", "enabled")
    )
    fetch_hosts: str = _row(
        "", "Hosts that agents may fetch from, such as api.example.com,*.example.org; empty: no such tool."
    )
    fetch_private: str = _row(
        "", "Networks that may be fetched from although they are not public, such as 10.0.0.0/8; empty: none."
    )
    sandbox_cpu_limit: float = _row(600.0, "CPU seconds of one command, over all its processes.", minimum=1)
    sandbox_memory_limit_mb: int = _row(
        1_024, "Memory of one command, over all its processes, in MB.", minimum=32
    )
    sandbox_processes: int = _row(128, "Processes and threads of one command.", minimum=8, maximum=30_000)
    sandbox_output_bytes: int = _row(
        10_485_760, "Output of one command, in bytes; a command that prints more is stopped.", minimum=1_024
    )
    sandbox_file_limit_mb: int = _row(1_024, "Largest file that a command may write, in MB.", minimum=1)
    sandbox_free_mb: int = _row(500, "Disk space that commands must leave free, in MB.", minimum=0)
    sandbox_uid: int = _row(
        64_321,
        "Uid of commands on this machine if Easel runs as root.",
        minimum=1,
        maximum=4_294_967_293,
    )
    # limits
    max_body_bytes: int = _row(
        8_388_608,
        "Largest request body; an asset of EASEL_MAX_ASSET_BYTES as Base64 must fit.",
        minimum=1_024,
    )
    max_frame_bytes: int = _row(
        1_048_576, "Largest WebSocket frame; a larger one closes the connection with 1009.", minimum=1_024
    )
    max_message_bytes: int = _row(262_144, "Largest message that starts a run.", minimum=16)
    max_result_bytes: int = _row(
        262_144, "Largest result of a tool; a larger one is an error that the model sees.", minimum=1_024
    )
    max_artifact_bytes: int = _row(104_857_600, "Largest artifact that can be uploaded.", minimum=1_024)
    max_state_bytes: int = _row(1_048_576, "Largest state of a canvas.", minimum=1_024)
    max_asset_bytes: int = _row(5_242_880, "Largest asset of a canvas.", minimum=1_024)
    canvas_versions: int = _row(
        versions.DEFAULT_MAX_VERSIONS,
        "Earlier versions of one canvas that are kept; the oldest are deleted, except the newest by a person "
        "and the newest accepted one.",
        minimum=1,
        maximum=200,
    )
    max_document_versions: int = _row(
        1_000, "Versions of one document that are kept; the oldest are deleted.", minimum=1
    )
    max_document_bytes: int = _row(1_048_576, "Largest text of a document.", minimum=1_024)
    account_limits: str = _row(
        "",
        f"Limits of one account over all instances, such as `runs=8,stored_mb=1000`; 0: none. Others: "
        f"{describe_defaults()}.",
    )
    artifact_days: float = _row(
        7.0,
        "Days to keep an artifact that nothing refers to, after its last upload. An upload must end in half "
        "of this time. At least 0.0001, which is 9 seconds.",
        minimum=0.0001,
        maximum=36_500,
    )
    sweep_seconds: float = _row(
        3600.0,
        "Interval at which one of the workers releases references and sweeps what nothing refers to.",
        minimum=1,
        maximum=604_800,
    )
    # database
    database_pool: int = _row(
        8, "Postgres connections of one process, without the one for notifications.", minimum=1, maximum=1_000
    )
    database_timeout_seconds: float = _row(
        8.0, "Seconds after which a statement times out and its connection counts as lost.", minimum=0.5
    )
    sqlite_synchronous: str = _row(
        "full",
        "SQLite durability: full, or normal (faster; a power failure may lose the last commits).",
        one_of=("full", "normal"),
    )
    # from the family EASEL_OAUTH_<NAME>_…
    oauth: tuple[OAuthProvider, ...] = field(default=())

    @property
    def openid(self) -> OpenIdProvider | None:
        return read_openid(self)

    @property
    def is_prod(self) -> bool:
        return self.profile == "prod"

    @property
    def data_folder(self) -> Path:
        of_user = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        return Path(self.data or f"{of_user}/easel").expanduser()

    @property
    def sandbox_folder(self) -> Path:
        return Path(self.sandbox_root).expanduser() if self.sandbox_root else self.data_folder / "sandbox"

    @property
    def on_postgres(self) -> bool:
        return bool(self.database_url)

    @property
    def earlier_keys(self) -> tuple[str, ...]:
        """The values of EASEL_OLD_SECRET_KEYS."""
        return tuple(key.strip() for key in self.old_secret_keys.split(",") if key.strip())

    @property
    def limits_of_account(self) -> AccountLimits:
        """The value of EASEL_ACCOUNT_LIMITS."""
        return parse_limits(self.account_limits)

    @property
    def has_weak_token(self) -> bool:
        return 0 < len(self.token) < MIN_TOKEN_LENGTH


@dataclass(frozen=True, slots=True)
class SettingRow:
    name: str
    variable: str
    default: Any
    description: str
    secret: bool


def rows() -> list[SettingRow]:
    return [
        SettingRow(
            f.name, PREFIX + f.name.upper(), f.default, f.metadata["description"], f.metadata["secret"]
        )
        for f in _rows()
    ]


def _rows() -> list[Field[Any]]:
    """Return the fields that one variable each sets."""
    return [f for f in fields(Settings) if "description" in f.metadata]


def load(environment: Mapping[str, str] | None = None, **options: Any) -> Settings:
    """Load the settings from the environment. An option of a command overrides it unless it is None.

    Raises `BadSettings` for a value that cannot be used.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for f in _rows():
        source, text = OPTIONS.get(f.name, f"--{f.name}"), options.get(f.name)
        if text is None:
            source = PREFIX + f.name.upper()
            text = environment.get(source)
        if text is None or text == "":
            continue
        values[f.name] = parse_value(source, str(text).strip(), f.default, f.metadata)
    is_prod = values.get("profile") == "prod"
    settings = Settings(**values, oauth=read_providers(environment, is_prod=is_prod))
    if 0 < len(settings.secret_key) < MIN_KEY_LENGTH:
        raise BadSettings(problem=f"EASEL_SECRET_KEY must have at least {MIN_KEY_LENGTH} characters.")
    if any(len(key) < MIN_KEY_LENGTH for key in settings.earlier_keys):
        raise BadSettings(
            problem=f"Each key in EASEL_OLD_SECRET_KEYS must have at least {MIN_KEY_LENGTH} characters."
        )
    try:
        _ = parse_hosts(settings.fetch_hosts), parse_networks(settings.fetch_private)
        parse_networks(settings.trusted_proxies, "EASEL_TRUSTED_PROXIES")
    except BadInput as problem:
        raise BadSettings(problem=problem.message) from None
    try:
        parse_limits(settings.account_limits)
    except BadInput as problem:
        raise BadSettings(problem=f"EASEL_ACCOUNT_LIMITS: {problem.message}") from None
    check_model(settings.provider, settings.model, settings.api_key, settings.base_url)
    check_address("EASEL_PUBLIC_URL", settings.public_url)
    check_address("EASEL_ASSETS_URL", settings.assets_url)
    if settings.assets_url and not settings.public_url:
        raise BadSettings(
            problem="EASEL_ASSETS_URL needs EASEL_PUBLIC_URL too: only its pages may show them."
        )
    _ = settings.openid  # raises for settings that do not fit together
    check_profile(settings.oauth, settings.public_url, is_prod=settings.is_prod)
    if settings.on_postgres and not settings.secret_key:
        refuse_without_key(settings.oauth)
    return settings


def unknown_variables(environment: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return the variables with our prefix that no row reads, each with the most similar one: it may be a
    typo."""
    environment = os.environ if environment is None else environment
    known = [row.name.upper() for row in rows()]
    given = sorted(
        name.removeprefix(PREFIX)
        for name in environment
        if name.startswith(PREFIX) and not is_of_family(name)
    )
    nearest = {name: find_nearest(name, known) for name in given if name not in known}
    return {PREFIX + name: found and PREFIX + found for name, found in nearest.items()}
