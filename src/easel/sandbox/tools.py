"""The tools of a machine: Bash, Read, Write, Edit, Glob and Grep.

The way in, for the `local` node of a host and for `easel node` alike:

    choice = choose(mode)                                        # modes.py: what is in force here; BadSettings for what cannot be
    shell = choice.shell(Limits(...))                            # None: no Bash here, and `choice.says` why
    tools = machine_tools("local", SessionFolders(...), shell)   # folders.py: each session's own folder
    tools = machine_tools("", FixedRoots([Path(...)]), shell)    # places.py: a node's roots; bare names

    await tool.use(args, context)                        # fits host's port `Tool`; FixedRoots need no context: pass None
    await tool.use(args, context, on_output=hear)        # Bash: `hear(text)` gets the output as it comes, in the loop's thread;
                                                         # so does `context.on_output`

Arguments are those that the tool's schema allows: whoever calls has checked that. Cancelling `use` ends the command and everything
that it started before it returns. What goes wrong is `ToolFailed`. Results are JSON values; a command that fails is a result, not an
error. `note` is told of every command (`sandbox.ran`, SB-16) and of every attempt to leave the place or to exceed a limit
(`sandbox.violation`, SB-17); it fits `Audit.note`.
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
from easel.sandbox import files, search
from easel.sandbox import safe_open as beneath
from easel.sandbox.command import KILLED, NotStarted, Ran, Shell
from easel.sandbox.concurrency import Threads
from easel.sandbox.definitions import MAX_COMMAND_LENGTH, NETWORK, TIMEOUT_MS, definitions
from easel.sandbox.files import Refused
from easel.sandbox.limits import CommandLimits, Stopped
from easel.sandbox.output import Hear
from easel.sandbox.workspace import Outside, Workspace, WorkspaceProvider

Args = Mapping[str, Any]
Work = Callable[[Workspace, Args, Event], Any]

# One file is soon done with; a search may take its time, and has threads of its own.
FILES, SEARCHES = Threads("easel-files", 16, each=4), Threads("easel-search", 4, each=2)

FILE_WORK: Mapping[str, tuple[Threads, Work]] = {
    "Read": (FILES, lambda place, args, _: files.read(place, args)),
    "Write": (FILES, lambda place, args, _: files.write(place, args)),
    "Edit": (FILES, lambda place, args, _: files.edit(place, args)),
    "Glob": (SEARCHES, search.glob),
    "Grep": (SEARCHES, search.grep),
}


class Note(Protocol):
    """Tells those who run Easel; never waits and never fails."""

    def __call__(
        self, principal: Principal | None, action: str, /, *, subject: str | None, details: Mapping[str, Any]
    ) -> None: ...


def tell_nobody(
    principal: Principal | None, action: str, /, *, subject: str | None, details: Mapping[str, Any]
) -> None:
    """For where there is no audit trail: a node has none of its own."""


@dataclass(frozen=True, slots=True)
class MachineTool:
    definition: ToolDefinition
    workplace: WorkspaceProvider
    shell: Shell | None
    note: Note
    worker_id: str

    @property
    def bare_name(self) -> str:
        return self.definition.name.rpartition("__")[2]

    async def use(self, args: Args, context: ToolContext | None, on_output: Hear | None = None) -> Any:
        hear = on_output or (context.on_output if context else None)
        try:
            async with self.workplace.enter(context) as place:
                return await self._work(args, place, context, hear)
        except Refused as problem:
            raise self._failed(str(problem)) from None
        except beneath.NotAFile:
            raise self._failed(f"{args['path']} is a link, a pipe or a device, and no file.") from None
        except UnicodeEncodeError:
            raise self._failed("what was asked has half of a character (a lone surrogate) in it.") from None
        except OSError as problem:
            raise self._failed(_said(args, problem)) from problem

    async def _work(
        self, args: Args, place: Workspace, context: ToolContext | None, hear: Hear | None
    ) -> Any:
        try:
            if self.bare_name == "Bash":
                return await self._run(args, place, context, hear)
            threads, work = FILE_WORK[self.bare_name]
            return await threads.run(str(place.roots[0].folder), partial(work, place, args))
        except Outside:
            path = str(args.get("path", args.get("workdir", "")))[:500]
            self._violated(context, place, "path", {"path": path})
            raise self._failed(
                f"{path} is outside of {_names(place)}; nothing there can be touched."
            ) from None

    async def _run(self, args: Args, place: Workspace, context: ToolContext | None, hear: Hear | None) -> Any:
        assert self.shell is not None
        command: str = args["command"]
        if "\0" in command or len(command.encode(errors="replace")) > MAX_COMMAND_LENGTH:
            raise self._failed(
                f"a command has at most {MAX_COMMAND_LENGTH} bytes, and none that is zero; write a script to a file."
            )
        try:
            ran = await self.shell.run(
                command,
                place,
                cwd=_folder(place, args.get("workdir", ".")),
                timeout_seconds=args.get("timeout", TIMEOUT_MS) / 1000,
                network=bool(self.definition.schema.get(NETWORK)),
                hear=hear,
            )
        except NotStarted as problem:
            raise self._failed(f"the sandbox could not be set up ({problem}).") from None
        except asyncio.CancelledError:
            self._record(context, place, {"exit_code": KILLED, "cancelled": True})
            raise
        self._record(context, place, {"exit_code": ran.exit_code, "seconds": round(ran.seconds, 3)})
        if ran.stopped is not None and ran.stopped is not Stopped.TIME:
            self._violated(context, place, "limit", {"limit": ran.stopped.value})
        return told(ran, self.shell.limits)

    def _record(self, context: ToolContext | None, place: Workspace, how: Mapping[str, Any]) -> None:
        details = {**self._where(context, place), **how}
        self.note(
            context and context.principal, "sandbox.ran", subject=_subject(context, place), details=details
        )

    def _violated(
        self, context: ToolContext | None, place: Workspace, kind: str, more: Mapping[str, Any]
    ) -> None:
        details = {**self._where(context, place), "kind": kind, **more}
        self.note(
            context and context.principal,
            "sandbox.violation",
            subject=_subject(context, place),
            details=details,
        )

    def _where(self, context: ToolContext | None, place: Workspace) -> Mapping[str, Any]:
        return {
            "tool": self.definition.name,
            "sandbox_mode": self.shell.mode if self.shell else None,
            "worker_id": context.claim.worker_id if context and context.claim else self.worker_id,
            "session_id": context.session_key if context else None,
            "sandbox_root": str(place.roots[0].folder),
        }

    def _failed(self, reason: str) -> ToolFailed:
        return ToolFailed(tool=self.definition.name, reason=reason)


def machine_tools(
    prefix: str,
    workplace: WorkspaceProvider,
    shell: Shell | None,
    *,
    network: bool = False,
    note: Note = tell_nobody,
    worker_id: str = "",
) -> list[MachineTool]:
    """All of them, without Bash where there is no shell. `network`: Bash is a tool that may use it; the place decides too."""
    return [
        MachineTool(one, workplace, shell, note, worker_id)
        for one in definitions(prefix, has_shell=shell is not None, network=network)
    ]


def told(ran: Ran, limits: CommandLimits) -> Mapping[str, Any]:
    """A command's result. `stopped` is there when we ended it, and `reason` says it in words."""
    result: dict[str, Any] = {"output": ran.output, "exit_code": ran.exit_code, "truncated": ran.truncated}
    if ran.stopped is not None:
        result |= {"stopped": ran.stopped.value, "reason": _reason(ran, limits)}
    return result


def _reason(ran: Ran, limits: CommandLimits) -> str:
    match ran.stopped:
        case Stopped.TIME:
            return f"It took longer than {ran.seconds:.1f} s and was stopped; `timeout` sets the limit."
        case Stopped.CPU:
            return f"It used more than {limits.cpu_seconds:g} s of CPU time and was stopped."
        case Stopped.MEMORY:
            return f"It used more than {limits.memory_bytes // 1_048_576} MB of memory and was stopped."
        case Stopped.PROCESSES:
            return f"It had {limits.processes} processes and threads and was stopped."
        case Stopped.OUTPUT:
            return f"It said more than {limits.output_bytes} bytes and was stopped; send output to a file."
        case Stopped.DISK:
            return f"Less than {limits.free_bytes // 1_048_576} MB are free on the disk; remove files that are not needed."
        case None:
            return ""


def _folder(place: Workspace, workdir: str) -> str:
    """As the command knows it, after a look that it is a folder, and inside."""
    with beneath.opened(place, workdir, beneath.FOLDER):
        root, way = place.find(workdir)
    return posixpath.normpath(posixpath.join(root.at, way))


def _names(place: Workspace) -> str:
    return ", ".join(root.at for root in place.roots)


def _subject(context: ToolContext | None, place: Workspace) -> str:
    return context.claim.run_id if context and context.claim else place.name


def _said(args: Args, problem: OSError) -> str:
    path = str(args.get("path", args.get("workdir", ".")))[:500]
    match problem.errno:
        case errno.ENOENT:
            return f"there is no {path}."
        case errno.EISDIR:
            return f"{path} is a folder."
        case errno.ENOTDIR:
            return f"{path} is no folder, or leads through a file."
        case errno.ELOOP:
            return f"{path} leads through links without end."
        case errno.ENOSPC | errno.EDQUOT:
            return "the disk is full; what was there is as it was."
        case _:
            return f"{path}: {problem.strerror}."
