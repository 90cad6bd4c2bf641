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
from easel.sandbox.limits import MB, CommandLimits, Stopped
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


STOP_REASONS: Mapping[Stopped, str] = {
    Stopped.TIME: "It took longer than {seconds:.1f} s and was stopped; `timeout` sets the limit.",
    Stopped.CPU: "It used more than {cpu_seconds:g} s of CPU time and was stopped.",
    Stopped.MEMORY: "It used more than {memory_mb} MB of memory and was stopped.",
    Stopped.PROCESSES: "It had {processes} processes and threads and was stopped.",
    Stopped.OUTPUT: "It wrote more than {output_bytes} bytes and was stopped; write to a file instead.",
    Stopped.DISK: "Less than {free_mb} MB are free on the disk; delete unused files.",
}
OS_ERRORS: Mapping[int, str] = {
    errno.ENOENT: "{path} does not exist.",
    errno.EISDIR: "{path} is a folder.",
    errno.ENOTDIR: "{path} is not a folder, or leads through a file.",
    errno.ELOOP: "{path} leads through too many links.",
    errno.ENOSPC: "the disk is full; nothing was changed.",
    errno.EDQUOT: "the disk is full; nothing was changed.",
}


class Note(Protocol):
    """Record an audit event. Must neither block nor raise."""

    def __call__(
        self, principal: Principal | None, action: str, /, *, subject: str | None, details: Mapping[str, Any]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class MachineTool:
    definition: ToolDefinition
    workspaces: WorkspaceProvider
    shell: Shell | None
    note: Note | None  # None: a node has no audit trail
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
        env = env or (context.env if context else None) or {}
        try:
            async with self.workspaces.enter(context) as workspace:
                try:
                    if self.bare_name == "Bash":
                        return await self._run(args, workspace, context, on_output, env)
                    threads, work = FILE_WORK[self.bare_name]
                    return await threads.run(str(workspace.roots[0].folder), partial(work, workspace, args))
                except OutsideDirectory:
                    path = _path_of(args)
                    self._record("sandbox.violation", context, workspace, kind="path", path=path)
                    roots = ", ".join(root.visible_path for root in workspace.roots)
                    raise self._failed(f"{path} is outside of {roots}; a path must be inside.") from None
        except FileToolError as problem:
            raise self._failed(str(problem)) from None
        except NotRegularFile:
            raise self._failed(
                f"{args['path']} is a link, a pipe or a device; it must be a regular file."
            ) from None
        except UnicodeEncodeError:
            raise self._failed("the arguments must be valid Unicode; there is a lone surrogate.") from None
        except OSError as problem:
            text = OS_ERRORS.get(problem.errno or 0, f"{{path}}: {problem.strerror}.")
            raise self._failed(text.replace("{path}", _path_of(args))) from problem

    async def _run(
        self,
        args: Args,
        workspace: Workspace,
        context: ToolContext | None,
        on_output: OnOutput | None,
        env: Mapping[str, str],
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
            self._record("sandbox.ran", context, workspace, exit_code=KILLED, cancelled=True)
            raise
        seconds = round(result.seconds, 3)
        self._record("sandbox.ran", context, workspace, exit_code=result.exit_code, seconds=seconds)
        if result.stopped not in (None, Stopped.TIME):
            limit = result.stopped.value
            self._record("sandbox.violation", context, workspace, kind="limit", limit=limit)
        return to_json(result, self.shell.limits)

    def _record(self, action: str, context: ToolContext | None, workspace: Workspace, **outcome: Any) -> None:
        claim = context.claim if context else None
        details = {
            "tool": self.definition.name,
            "sandbox_mode": self.shell.launcher.name if self.shell else None,
            "worker_id": claim.worker_id if claim else self.worker_id,
            "session_id": context.session_key if context else None,
            "sandbox_root": str(workspace.roots[0].folder),
            **outcome,
        }
        if action == "sandbox.ran" and context and context.commands is not None:
            context.commands.append(details)
        elif self.note is not None:
            subject = claim.run_id if claim else workspace.name
            self.note(context and context.principal, action, subject=subject, details=details)

    def _failed(self, reason: str) -> ToolFailed:
        return ToolFailed(tool=self.definition.name, reason=reason)


def machine_tools(
    prefix: str,
    workspaces: WorkspaceProvider,
    shell: Shell | None,
    *,
    network: bool = False,
    note: Note | None = None,
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
        value |= {
            "stopped": result.stopped.value,
            "reason": STOP_REASONS[result.stopped].format(
                seconds=result.seconds,
                cpu_seconds=limits.cpu_seconds,
                memory_mb=limits.memory_bytes // MB,
                processes=limits.processes,
                output_bytes=limits.output_bytes,
                free_mb=limits.free_bytes // MB,
            ),
        }
    return value


def _checked_workdir(workspace: Workspace, workdir: str) -> str:
    """Return the folder's path inside the sandbox. Raises if it is not a folder of the workspace."""
    with open_path(workspace, workdir, ENTER_DIRECTORY):
        root, relative = workspace.find(workdir)
    return posixpath.normpath(posixpath.join(root.visible_path, relative))


def _path_of(args: Args) -> str:
    return str(args.get("path", args.get("workdir", ".")))[:500]
