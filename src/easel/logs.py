"""Structured logs: one line per event, as text or as JSON, without secrets or payloads."""

import contextlib
import logging
import re
import sys
import textwrap
import traceback
from collections.abc import Mapping
from typing import Any, TextIO, cast

import structlog

from easel.core.secret.mask import mask_active
from easel.errors import BadSettings

_MAX_RUN_LENGTH = 512  # a run of at least so many Base64-like characters is cut
_PAYLOAD = re.compile(rf"[A-Za-z0-9+/=_-]{{{_MAX_RUN_LENGTH},}}")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(setting: str) -> None:
    """Set up logging. `setting` is a level and optionally a format: `info`, `debug,json`."""
    words = [word.strip().lower() for word in setting.split(",") if word.strip()]
    levels = [word for word in words if word in _LEVELS]
    if len(levels) > 1 or any(word not in (*_LEVELS, "json", "text") for word in words):
        raise BadSettings(
            problem=f"EASEL_LOG must be one of {', '.join(_LEVELS)}, optionally with `,json` or `,text`, "
            f"not {setting!r}."
        )
    level = _LEVELS[levels[0]] if levels else logging.INFO
    as_json = "json" in words
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if as_json else structlog.dev.set_exc_info,
            _cut_payloads,
            structlog.processors.JSONRenderer() if as_json else _readable(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _BestEffortStream())),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[_Bridge()], force=True)
    # The HTTP edge logs the errors of requests itself, with their references.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    # An invalid form is a 400 for its sender, not a warning for the operator.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)


def _cut_payloads(_: Any, __: str, line: Any) -> Any:
    """Cut payloads in the values of a log line to their beginning, and mask secrets. CC-23, RS-66"""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = without_payloads(mask_active(value))
    return line


def without_payloads(text: str) -> str:
    """Return the text with every long run of Base64-like characters cut to its beginning."""
    if len(text) <= _MAX_RUN_LENGTH:
        return text
    return _PAYLOAD.sub(lambda run: f"{run[0][:40]}…({len(run[0])} characters)", text)


def warn_about_unknown(variables: Mapping[str, str | None]) -> None:
    """Log environment variables that no setting reads, each with the nearest setting: it may be a typo."""
    for name, nearest in variables.items():
        hint = {"did_you_mean": nearest} if nearest else {}
        structlog.get_logger("settings").warning("setting.unknown", name=name, **hint)


class _BestEffortStream:
    """A log stream that never raises: a full disk must not stop the process."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            if stderr := _stderr():
                stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if stderr := _stderr():
                stderr.flush()


def _stderr() -> TextIO | None:
    """Return stderr, or None if the process was started without it."""
    return cast("TextIO | None", sys.stderr)


class _Bridge(logging.Handler):
    """Handler that logs the records of libraries in our format."""

    def emit(self, record: logging.LogRecord) -> None:
        level = max(record.levelno, logging.WARNING)
        structlog.get_logger(record.name).log(
            level, "library", message=record.getMessage(), exc_info=record.exc_info or False
        )


def _readable() -> structlog.dev.ConsoleRenderer:
    # Plain tracebacks: the pretty ones print local variables, and with them the token of a request.
    # Values as `repr`, so that a line break in a value cannot forge a log line.
    stderr = _stderr()
    is_terminal = stderr is not None and stderr.isatty()
    return structlog.dev.ConsoleRenderer(
        colors=is_terminal, repr_native_str=True, exception_formatter=_traceback
    )


def _traceback(out: TextIO, problem: Any) -> None:
    """Write the traceback indented and escaped, so that its text cannot forge a log line or set colours."""
    text = without_payloads(mask_active("".join(traceback.format_exception(*problem))))
    shown = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
    out.write("\n" + textwrap.indent(shown.rstrip(), "    | "))
