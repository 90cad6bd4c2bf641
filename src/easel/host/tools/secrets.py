"""The secrets of one tool call: resolved just before it, and masked in everything that comes back. RS-66

Owns the time in which values are known. Result, live output and errors are masked here, and so are log
lines and audit records during the call. Does not know tools or nodes.
"""

import asyncio
import contextlib
import hashlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from easel.core.call import Answer
from easel.core.secret.mask import ACTIVE, MaskedStream, SecretMask
from easel.core.stream.json_text import to_json
from easel.core.tool.context import UsedSecrets
from easel.core.tool.definition import X_SECRETS, ToolDefinition
from easel.core.values.references import set_argument
from easel.errors import BadInput, HostError, SecretsUnavailable
from easel.host.ports import SecretSource
from easel.ids import AccountId

OnOutput = Callable[[str], object]  # returns False if it takes no more

SLICE_LENGTH = 4_096  # characters of live output that are masked at once
PAUSE_SECONDS = 0.0005  # often while an index is built, so that the event loop gets the interpreter
MAX_CACHED_LENGTH = 2_000_000  # characters of the values whose masks are kept

T = TypeVar("T")
_thread = ThreadPoolExecutor(1, thread_name_prefix="masking")  # masks for all calls, beside the event loop
_masks: dict[bytes, tuple[int, SecretMask]] = {}  # of recent calls, by digest of the values, in order of use


async def _run(work: Callable[..., T], *args: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_thread, work, *args)


def _find_or_build(values: Mapping[str, str]) -> SecretMask:
    encoded = to_json(sorted(values.items())).encode()
    digest = hashlib.sha256(encoded).digest()
    found = _masks.pop(digest, None)
    while _masks and len(encoded) + sum(size for size, _ in _masks.values()) > MAX_CACHED_LENGTH:
        del _masks[next(iter(_masks))]
    _masks[digest] = found or (len(encoded), SecretMask(values, lambda: time.sleep(PAUSE_SECONDS)))
    return _masks[digest][1]


class _MaskedOutput:
    """Masks live output slice by slice, and passes it on in order."""

    def __init__(self, mask: SecretMask, on_output: OnOutput) -> None:
        self._stream = MaskedStream(mask)
        self._on_output = on_output
        self._waiting: deque[str] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_full = False

    def feed(self, text: str) -> bool:
        if not self._is_full:
            self._waiting += [text[at : at + SLICE_LENGTH] for at in range(0, len(text), SLICE_LENGTH)]
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._drain())
        return not self._is_full

    async def _drain(self) -> None:
        while self._waiting:
            piece = self._waiting.popleft()
            self._show(await _run(self._stream.feed, piece, bool(self._waiting)))

    def _show(self, text: str) -> None:
        if text and not self._is_full and self._on_output(text) is False:
            self._is_full = True
            self._waiting.clear()

    async def close(self) -> None:
        """Pass on the output that was held back."""
        if self._task is not None:
            await self._task
            self._show(await _run(self._stream.close))


class OpenSecrets:
    """The secrets of a call while it runs. Without a mask, the call has only texts, which are shown."""

    def __init__(self, used: UsedSecrets, values: Mapping[str, str], mask: SecretMask | None = None) -> None:
        self._used = used
        self._values = values
        self._outputs: list[_MaskedOutput] = []
        self._mask = mask
        self.env = {**dict(used.texts), **{name: values[name] for name in used.env}}

    def fill(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments with the values in place of the names."""
        filled = dict(args)
        for use in self._used.args:
            filled = set_argument(filled, use.path, self._values[use.name])
        return filled

    def mask_output(self, on_output: OnOutput | None) -> OnOutput | None:
        """Return a callback that masks live output before it passes it on."""
        if on_output is None or self._mask is None:
            return on_output
        self._outputs.append(_MaskedOutput(self._mask, on_output))
        return self._outputs[-1].feed

    async def mask_value(self, value: Any) -> Any:
        """Return the result of the call without the values of secrets."""
        return value if self._mask is None else await _run(self._mask.value, value)

    async def mask_answer(self, answer: Answer) -> Answer:
        """Return the answer of a node without the values of secrets, for the row of a call."""
        error, result = await self.mask_value([answer.error, answer.result])
        return replace(answer, result=result, error=error)

    async def close(self) -> None:
        for output in self._outputs:
            await output.close()


@contextlib.asynccontextmanager
async def open_secrets(
    source: SecretSource | None, account_id: AccountId, used: UsedSecrets
) -> AsyncGenerator[OpenSecrets]:
    """Resolve the secrets of a call for the duration of the block. An error of the block is masked.

    Raises `BadInput` for a secret that does not exist.
    """
    if not used.names:
        yield OpenSecrets(used, {})
        return
    if source is None:
        raise SecretsUnavailable(problem="This process cannot read secrets.")
    values = await source.resolve(account_id, used.names)
    mask = await _run(_find_or_build, values)
    opened = OpenSecrets(used, values, mask)
    token = ACTIVE.set(mask)
    try:
        yield opened
    except HostError as problem:
        raise await _run(mask_error, problem, mask) from None
    finally:
        await opened.close()
        ACTIVE.reset(token)


def mask_error(problem: HostError, mask: SecretMask) -> HostError:
    """Return the error without the values of secrets."""
    details = {name: mask.value(detail) for name, detail in problem.details.items()}
    masked = type(problem).with_message(mask.text(problem.message), **details)
    masked.retry_after = problem.retry_after
    return masked


def check_takes_secrets(definition: ToolDefinition, used: UsedSecrets) -> None:
    """Raise `BadInput` if the call has variables, and the tool does not take them."""
    if (used.env or used.texts) and not definition.takes_secrets:
        raise BadInput(
            problem=f"{definition.name} takes neither `secrets` nor `text` of an action: only a tool whose "
            f'schema has `{X_SECRETS}: true` does, such as Bash. Use {{"$secret": "NAME"}} in an argument.'
        )
