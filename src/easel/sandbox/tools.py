"""The tools of a machine: Bash, Read, Write, Edit, Glob and Grep.

This module is the entry point of the package, for the `local` node of a host and for `easel node`:

    choice = choose(mode)                                      # modes.py; raises BadSettings
    shell = choice.shell(CommandLimits(...))                   # None: no Bash, see `choice.description`
    tools = machine_tools("local", SessionDirs(...), shell)    # a folder for each session
    tools = machine_tools("", FixedRoots([Path(...)]), shell)  # the roots of a node, no prefix

    await tool.use(args, context)                              # with FixedRoots, context may be None
    await tool.use(args, context, on_output=print)             # Bash calls it with each piece of output
    await tool.use(args, None, env={"KEY": "…"})               # variables of the command; else context.env

The caller must have checked the arguments against the tool's schema. Cancelling `use` ends the command and
all its processes before `use` returns. Results are JSON values; a command with a non-zero exit code is a
result. Errors are raised as `ToolFailed`. `note` is called for every command (`sandbox.ran`, SB-16), and for
every attempt to leave the workspace or exceed a limit (`sandbox.violation`, SB-17); `Audit.note` implements
it.
"""

import asyncio
import errno
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, Protocol

from easel.core.principal import Principal
from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.errors import ToolFailed
from easel.fs import ENTER_DIRECTORY, OutsideDirectory
from easel.sandbox import files, search
from easel.sandbox.command import KILLED, CommandResult, NotStarted, Shell
from easel.sandbox.concurrency import Threads
from easel.sandbox.definitions import MAX_COMMAND_LENGTH, NETWORK, TIMEOUT_MS, definitions
from easel.sandbox.files import FileToolError
from easel.sandbox.limits import CommandLimits, Stopped
from easel.sandbox.output import OnOutput
from easel.sandbox.safe_open import NotRegularFile, open_path
from easel.sandbox.workspace import Workspace, WorkspaceProvider

Args = Mapping[str, Any]
Work = Callable[[Workspace, Args, Event], Any]

# Searches can take long, so they have separate threads.
FILES = Threads("easel-files", 16, max_per_owner=4)
SEARCHES = Threads("easel-search", 4, max_per_owner=2)

FILE_WORK: Mapping[str, tuple[Threads, Work]] = {
    "Read": (FILES, lambda workspace, args, _: files.read(workspace, args)),
    "Write": (FILES, lambda workspace, args, _: files.write(workspace, args)),
    "Edit": (FILES, lambda workspace, args, _: files.edit(workspace, args)),
    "Glob": (SEARCHES, search.glob),
    "Grep": (SEARCHES, search.grep),
}


class Note(Protocol):
    """Record an audit event. Must neither block nor raise."""

    def __call__(
        self, principal: Principal | None, action: str, /, *, subject: str | None, details: Mapping[str, Any]
    ) -> None: ...


def record_nothing(
    principal: Principal | None, action: str, /, *, subject: str | None, details: Mapping[str, Any]
) -> None:
    """Drop the event: a node has no audit trail."""


@dataclass(frozen=True, slots=True)
class MachineTool:
    definition: ToolDefinition
    workspaces: WorkspaceProvider
    shell: Shell | None
    note: Note
    worker_id: str

    @property
    def bare_name(self) -> str:
        return self.definition.name.rpartition("__")[2]

    async def use(
        self,
        args: Args,
        context: ToolContext | None,
        on_output: OnOutput | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Any:
        on_output = on_output or (context.on_output if context else None)
        env = env or (context.env if context else None)
        try:
            async with self.workspaces.enter(context) as workspace:
                return await self._work(args, workspace, context, on_output, env)
        except FileToolError as problem:
            raise self._failed(str(problem)) from None
        except NotRegularFile:
            raise self._failed(
                f"{args['path']} is a link, a pipe or a device; it must be a regular file."
            ) from None
        except UnicodeEncodeError:
            raise self._failed("the arguments must be valid Unicode; there is a lone surrogate.") from None
        except OSError as problem:
            raise self._failed(_describe(args, problem)) from problem

    async def _work(
        self,
        args: Args,
        workspace: Workspace,
        context: ToolContext | None,
        on_output: OnOutput | None,
        env: Mapping[str, str] | None,
    ) -> Any:
        try:
            if self.bare_name == "Bash":
                return await self._run(args, workspace, context, on_output, env)
            threads, work = FILE_WORK[self.bare_name]
            return await threads.run(str(workspace.roots[0].folder), partial(work, workspace, args))
        except OutsideDirectory:
            path = str(args.get("path", args.get("workdir", "")))[:500]
            self._record_violation(context, workspace, "path", {"path": path})
            raise self._failed(
                f"{path} is outside of {_root_paths(workspace)}; a path must be inside."
            ) from None

    async def _run(
        self,
        args: Args,
        workspace: Workspace,
        context: ToolContext | None,
        on_output: OnOutput | None,
        env: Mapping[str, str] | None,
    ) -> Any:
        assert self.shell is not None
        command: str = args["command"]
        if "\0" in command or len(command.encode(errors="replace")) > MAX_COMMAND_LENGTH:
            raise self._failed(
                f"a command must have at most {MAX_COMMAND_LENGTH} bytes and no zero byte; "
                "write a script to a file."
            )
        try:
            result = await self.shell.run(
                command,
                workspace,
                cwd=_checked_workdir(workspace, args.get("workdir", ".")),
                timeout_seconds=args.get("timeout", TIMEOUT_MS) / 1000,
                network=bool(self.definition.schema.get(NETWORK)),
                on_output=on_output,
                env=env,
            )
        except NotStarted as problem:
            raise self._failed(f"the sandbox could not be set up ({problem}).") from None
        except asyncio.CancelledError:
            self._record(context, workspace, {"exit_code": KILLED, "cancelled": True})
            raise
        self._record(context, workspace, {"exit_code": result.exit_code, "seconds": round(result.seconds, 3)})
        if result.stopped not in (None, Stopped.TIME):
            self._record_violation(context, workspace, "limit", {"limit": result.stopped.value})
        return to_json(result, self.shell.limits)

    def _record(self, context: ToolContext | None, workspace: Workspace, outcome: Mapping[str, Any]) -> None:
        details = {**self._audit_details(context, workspace), **outcome}
        if context and context.commands is not None:
            context.commands.append(details)
            return
        self.note(
            context and context.principal,
            "sandbox.ran",
            subject=_subject(context, workspace),
            details=details,
        )

    def _record_violation(
        self, context: ToolContext | None, workspace: Workspace, kind: str, more: Mapping[str, Any]
    ) -> None:
        details = {**self._audit_details(context, workspace), "kind": kind, **more}
        self.note(
            context and context.principal,
            "sandbox.violation",
            subject=_subject(context, workspace),
            details=details,
        )

    def _audit_details(self, context: ToolContext | None, workspace: Workspace) -> Mapping[str, Any]:
        return {
            "tool": self.definition.name,
            "sandbox_mode": self.shell.mode if self.shell else None,
            "worker_id": context.claim.worker_id if context and context.claim else self.worker_id,
            "session_id": context.session_key if context else None,
            "sandbox_root": str(workspace.roots[0].folder),
        }

    def _failed(self, reason: str) -> ToolFailed:
        return ToolFailed(tool=self.definition.name, reason=reason)


def machine_tools(
    prefix: str,
    workspaces: WorkspaceProvider,
    shell: Shell | None,
    *,
    network: bool = False,
    note: Note = record_nothing,
    worker_id: str = "",
) -> list[MachineTool]:
    """Return the machine tools, without Bash if there is no shell.

    With `network`, Bash may use the network if the workspace allows it too.
    """
    return [
        MachineTool(definition, workspaces, shell, note, worker_id)
        for definition in definitions(prefix, has_shell=shell is not None, network=network)
    ]


def to_json(result: CommandResult, limits: CommandLimits) -> Mapping[str, Any]:
    """Return the tool's result. `stopped` and `reason` are present if the command exceeded a limit."""
    value = {"output": result.output, "exit_code": result.exit_code, "truncated": result.truncated}
    if result.stopped is not None:
        value |= {"stopped": result.stopped.value, "reason": _stop_reason(result, limits)}
    return value


def _stop_reason(result: CommandResult, limits: CommandLimits) -> str:
    match result.stopped:
        case Stopped.TIME:
            return f"It took longer than {result.seconds:.1f} s and was stopped; `timeout` sets the limit."
        case Stopped.CPU:
            return f"It used more than {limits.cpu_seconds:g} s of CPU time and was stopped."
        case Stopped.MEMORY:
            return f"It used more than {limits.memory_bytes // 1_048_576} MB of memory and was stopped."
        case Stopped.PROCESSES:
            return f"It had {limits.processes} processes and threads and was stopped."
        case Stopped.OUTPUT:
            return f"It wrote more than {limits.output_bytes} bytes and was stopped; write to a file instead."
        case Stopped.DISK:
            return f"Less than {limits.free_bytes // 1_048_576} MB are free on the disk; delete unused files."
        case None:
            return ""


def _checked_workdir(workspace: Workspace, workdir: str) -> str:
    """Return the folder's path inside the sandbox. Raises if it is not a folder of the workspace."""
    with open_path(workspace, workdir, ENTER_DIRECTORY):
        root, relative = workspace.find(workdir)
    return posixpath.normpath(posixpath.join(root.visible_path, relative))


def _root_paths(workspace: Workspace) -> str:
    return ", ".join(root.visible_path for root in workspace.roots)


def _subject(context: ToolContext | None, workspace: Workspace) -> str:
    return context.claim.run_id if context and context.claim else workspace.name


def _describe(args: Args, problem: OSError) -> str:
    path = str(args.get("path", args.get("workdir", ".")))[:500]
    match problem.errno:
        case errno.ENOENT:
            return f"{path} does not exist."
        case errno.EISDIR:
            return f"{path} is a folder."
        case errno.ENOTDIR:
            return f"{path} is not a folder, or leads through a file."
        case errno.ELOOP:
            return f"{path} leads through too many links."
        case errno.ENOSPC | errno.EDQUOT:
            return "the disk is full; nothing was changed."
        case _:
            return f"{path}: {problem.strerror}."
