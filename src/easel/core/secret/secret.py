"""A secret of a user: its name and the limits of its value. RS-66

Owns which names and values are valid. A name can become an environment variable of a command, so names that
change how programs are found or started are refused. Does not know how secrets are stored.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from easel.core.validation import is_unsafe_name, quote_value, refuse, require_list
from easel.errors import BadInput, TooLarge

MAX_SECRETS = 200  # of one user
MAX_USED = 50  # by one canvas, and by one action
MAX_NAME_LENGTH = 64
MIN_VALUE_LENGTH = 6  # characters: a shorter value would be found in common text, and removed from it
MAX_VALUE_BYTES = 32_768
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# Variables that bash, the dynamic linker or a common interpreter reads before the command does.
_RESERVED = re.compile(
    r"PATH|HOME|PWD|OLDPWD|SHELL|SHELLOPTS|USER|LOGNAME|TERM|TMPDIR|ENV|IFS|PS[0-4]|CDPATH|GLOBIGNORE|"
    r"PROMPT_COMMAND|POSIXLY_CORRECT|UID|EUID|PPID|BASH\w*|LANG|LC_\w*|LD_\w*|DYLD_\w*|GCONV_PATH|"
    r"PYTHON\w*|PERL(?:5?LIB|5OPT|5DB)|RUBY(?:LIB|OPT)|NODE_(?:OPTIONS|PATH)|CLASSPATH|\w*JAVA\w*_OPTIONS|"
    r"GIT_SSH\w*|\w*_(?:PROXY|proxy)|EASEL_\w*|_"
)


@dataclass(frozen=True, slots=True)
class SecretInfo:
    """What may be shown of a secret."""

    name: str
    created_at: datetime
    updated_at: datetime


def check_secret_name(value: Any, at: str = "name") -> str:
    """Return the name of a secret. Raises `BadInput` for one that cannot be an environment variable."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        refuse(
            at,
            f"{quote_value(value)} is not the name of a secret; it must be 1 to {MAX_NAME_LENGTH} letters, "
            "digits and _, and not begin with a digit.",
        )
    if _RESERVED.fullmatch(value) or is_unsafe_name(value):
        refuse(
            at,
            f"{quote_value(value)} must not be the name of a secret: programs read an environment variable of"
            f" this name themselves. Choose another, such as MY_{value.strip('_').upper() or 'SECRET'}.",
        )
    return value


def check_secret_value(value: str) -> str:
    """Return the value of a secret. Raises `BadInput` or `TooLarge`; the error does not contain it."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadInput(problem="value: must be valid Unicode; there is a lone surrogate.") from None
    if "\0" in value:
        refuse("value", "must not contain a zero byte: no environment variable can.")
    if size > MAX_VALUE_BYTES:
        raise TooLarge(what="The value of a secret", limit=MAX_VALUE_BYTES)
    if len(value.strip()) < MIN_VALUE_LENGTH:
        refuse(
            "value",
            f"must have at least {MIN_VALUE_LENGTH} characters besides spaces around it, so "
            "that it can be removed from results without removing common text.",
        )
    return value


def parse_secret_names(raw: Any, at: str) -> tuple[str, ...]:
    """Return the names of a list in a spec, each once."""
    names = require_list(raw, at, max_items=MAX_USED)
    return tuple(
        dict.fromkeys(check_secret_name(name, f"{at}[{number}]") for number, name in enumerate(names))
    )
