"""The sandbox of this machine and the tools that run in it, for the local node and for `easel node`."""

from collections.abc import Sequence
from pathlib import Path

from easel.core.tool.node import LOCAL, check_node_id
from easel.core.web.hosts import parse_hosts, parse_networks
from easel.fetch.tool import FetchTool
from easel.host.audit.audit import Audit
from easel.host.metrics import SANDBOX_CLEANUP_FAILURES, SANDBOX_CLEANUPS
from easel.host.ports import Tool
from easel.ids import new_worker_id
from easel.node.address import gateway_url
from easel.node.client import NodeClient, Report
from easel.sandbox import modes
from easel.sandbox.limits import MB, CommandLimits
from easel.sandbox.modes import Choice
from easel.sandbox.session_dirs import SessionDirs
from easel.sandbox.tools import machine_tools
from easel.sandbox.workspace import FixedRoots
from easel.settings import Settings


def choose_sandbox(settings: Settings) -> Choice:
    """Choose how commands are isolated. Runs a probe command, so call this once per process. RS-61"""
    is_prod = settings.profile == "prod"
    return modes.choose(settings.sandbox_mode, uid=settings.sandbox_uid, bash=settings.bash, is_prod=is_prod)


def command_limits(settings: Settings) -> CommandLimits:
    return CommandLimits(
        cpu_seconds=settings.sandbox_cpu_limit,
        memory_bytes=settings.sandbox_memory_limit_mb * MB,
        processes=settings.sandbox_processes,
        output_bytes=settings.sandbox_output_bytes,
        file_bytes=settings.sandbox_file_limit_mb * MB,
        free_bytes=settings.sandbox_free_mb * MB,
    )


def describe_isolation(settings: Settings, sandbox: Choice) -> str:
    """Return how commands are isolated, as the consent dialog shows it. RS-64"""
    if sandbox.owner is None:
        return "not isolated"
    network = "with network" if settings.sandbox_network == "enabled" else "no network"
    return f"sandboxed, {network}"


def session_folders(settings: Settings, owner: int | None = None) -> SessionDirs:
    return SessionDirs(
        settings.sandbox_folder,
        owner=owner,
        ttl_seconds=settings.sandbox_ttl_seconds,
        network=settings.sandbox_network == "enabled",
        count_removed=SANDBOX_CLEANUPS.inc,
        count_failed=SANDBOX_CLEANUP_FAILURES.inc,
    )


def local_tools(settings: Settings, sandbox: Choice, folders: SessionDirs, audit: Audit) -> Sequence[Tool]:
    """Return the tools of the local node: this machine, with a folder for each session."""
    shell = sandbox.shell(command_limits(settings))
    worker_id = new_worker_id()
    tools = machine_tools(LOCAL, folders, shell, network=True, note=audit.note, worker_id=worker_id)
    hosts, private = parse_hosts(settings.fetch_hosts), parse_networks(settings.fetch_private)
    # A result has the body, and its JSON again.
    return [*tools, FetchTool(hosts, private, max_body_bytes=settings.max_result_bytes // 3)]


def build_node(
    settings: Settings,
    sandbox: Choice,
    *,
    url: str,
    node_id: str,
    token: str,
    roots: Sequence[Path],
    report: Report,
) -> NodeClient:
    """Build the client that makes this machine a tool node; its tools are limited to `roots`."""
    network = settings.sandbox_network == "enabled"
    workspaces = FixedRoots(roots, network=network)
    tools = machine_tools("", workspaces, sandbox.shell(command_limits(settings)), network=network)
    return NodeClient(gateway_url(url), check_node_id(node_id), tools, report, token)
