"""The secrets of one tool call: resolved just before it, and masked in everything that comes back. RS-66

Owns the time in which values are known. Result, live output and errors are masked here, and so are log
lines and audit records during the call. Does not know tools or nodes.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from typing import Any

from easel.core.secret.mask import ACTIVE, MaskedStream, SecretMask
from easel.core.tool.call import Answer
from easel.core.tool.context import UsedSecrets
from easel.core.tool.definition import X_SECRETS, ToolDefinition
from easel.core.values.references import set_argument
from easel.errors import BadInput, HostError, SecretsUnavailable
from easel.host.ports import SecretSource
from easel.ids import UserId

OnOutput = Callable[[str], None]


class OpenSecrets:
    """The secrets of a call while it runs."""

    def __init__(self, used: UsedSecrets, values: Mapping[str, str]) -> None:
        self._used = used
        self._values = values
        self._streams: list[MaskedStream] = []
        self.mask = SecretMask(values)
        self.env = {**dict(used.texts), **{name: values[name] for name in used.env}}

    def fill(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments with the values in place of the names."""
        filled = dict(args)
        for use in self._used.args:
            filled = set_argument(filled, use.path, self._values[use.name])
        return filled

    def mask_output(self, on_output: OnOutput | None) -> OnOutput | None:
        """Return a callback that masks live output before it passes it on."""
        if on_output is None:
            return None
        stream = MaskedStream(self.mask, on_output)
        self._streams.append(stream)
        return stream.feed

    def close(self) -> None:
        """Pass on the output that was held back."""
        for stream in self._streams:
            stream.close()


@contextlib.asynccontextmanager
async def open_secrets(
    source: SecretSource | None, user_id: UserId, used: UsedSecrets
) -> AsyncGenerator[OpenSecrets]:
    """Resolve the secrets of a call for the duration of the block. An error of the block is masked.

    Raises `BadInput` for a secret that does not exist.
    """
    if source is None and used.names:
        raise SecretsUnavailable(problem="This process cannot read secrets.")
    opened = OpenSecrets(used, await source.resolve(user_id, used.names) if source and used.names else {})
    token = ACTIVE.set(opened.mask)
    try:
        yield opened
    except HostError as problem:
        raise mask_error(problem, opened.mask) from None
    finally:
        opened.close()
        ACTIVE.reset(token)


def mask_error(problem: HostError, mask: SecretMask) -> HostError:
    """Return the error without the values of secrets."""
    details = {name: mask.value(detail) for name, detail in problem.details.items()}
    masked = type(problem).with_message(mask.text(problem.message), **details)
    masked.retry_after = problem.retry_after
    return masked


def mask_answer(answer: Answer, mask: SecretMask) -> Answer:
    """Return the answer of a node without the values of secrets, for the row of a call."""
    error = None if answer.error is None else mask.text(answer.error)
    return replace(answer, result=mask.value(answer.result), error=error)


def check_takes_secrets(definition: ToolDefinition, used: UsedSecrets) -> None:
    """Raise `BadInput` if the call has variables, and the tool does not take them."""
    if (used.env or used.texts) and not definition.takes_secrets:
        raise BadInput(
            problem=f"{definition.name} takes neither `secrets` nor `text` of an action: only a tool whose "
            f'schema has `{X_SECRETS}: true` does, such as Bash. Use {{"$secret": "NAME"}} in an argument.'
        )
