"""Structured logs: one line per thing that happened, readable or as JSON, never with a secret in it."""

import contextlib
import logging
import re
import sys
import textwrap
import traceback
from collections.abc import Mapping
from typing import Any, TextIO, cast

import structlog

from easel.errors import BadSettings

_LONG = 512
_PAYLOAD = re.compile(rf"[A-Za-z0-9+/=_-]{{{_LONG},}}")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(wish: str) -> None:
    """`wish` is a level and perhaps a format: `info`, `debug,json`."""
    words = [word.strip().lower() for word in wish.split(",") if word.strip()]
    levels = [word for word in words if word in _LEVELS]
    if len(levels) > 1 or any(word not in (*_LEVELS, "json", "text") for word in words):
        raise BadSettings(
            problem=f"EASEL_LOG is {wish!r}; it is one of {', '.join(_LEVELS)}, with `,json` or `,text` behind it."
        )
    level = _LEVELS[levels[0]] if levels else logging.INFO
    as_json = "json" in words
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if as_json else structlog.dev.set_exc_info,
            _light,
            structlog.processors.JSONRenderer() if as_json else _readable(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _BestEffortStream())),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[_Bridge()], force=True)
    logging.getLogger("uvicorn.error").setLevel(
        logging.CRITICAL
    )  # what breaks in a request is logged by the edge, with its reference


def _light(_: Any, __: str, line: Any) -> Any:
    """No payload in the log: a run of signs that no person reads is cut to its beginning. CC-23"""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = without_payloads(value)
    return line


def without_payloads(text: str) -> str:
    return (
        _PAYLOAD.sub(lambda run: f"{run[0][:40]}…({len(run[0])} characters)", text)
        if len(text) > _LONG
        else text
    )


def warn_of(unknown: Mapping[str, str | None]) -> None:
    """A slip in a name would otherwise go unnoticed, such as one that leaves Easel on SQLite. With each, what may have been meant."""
    for name, meant in unknown.items():
        structlog.get_logger("settings").warning(
            "setting.unknown", name=name, **({"did_you_mean": meant} if meant else {})
        )


class _BestEffortStream:
    """A stream to log on that never fails: a full disk under the log must not stop the work."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


class _Bridge(logging.Handler):
    """What libraries log goes out in the same form as ours."""

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        structlog.get_logger(record.name).log(
            max(record.levelno, logging.WARNING), "library", said=said, exc_info=record.exc_info or False
        )


def _readable() -> structlog.dev.ConsoleRenderer:
    # Plain tracebacks: the pretty ones print local variables, and with them every token of a request.
    # Values as Python would write them, so that a line break in one cannot pretend to be another line.
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), repr_native_str=True, exception_formatter=_traceback
    )


def _traceback(out: TextIO, problem: Any) -> None:
    """Indented and escaped: an exception's own text can neither begin a line of the log nor colour it."""
    text = without_payloads("".join(traceback.format_exception(*problem)))
    shown = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
    out.write("\n" + textwrap.indent(shown.rstrip(), "    | "))
