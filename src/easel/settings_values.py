"""The rows and values of settings: from text to a checked value. Does not know which settings exist.

Every check raises `BadSettings`, and no message contains the value of a secret.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast
from urllib.parse import urlsplit

from easel.core.model.choice import Provider
from easel.core.model.settings import check_base_url, check_key, parse_provider
from easel.errors import BadInput, BadSettings

BOOLEANS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def new_row(
    default: Any,
    description: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    one_of: Sequence[str] = (),
    secret: bool = False,
) -> Any:
    """Return the field of a setting: its default, its description and its bounds."""
    bounds = {"minimum": minimum, "maximum": maximum, "one_of": one_of}
    return field(
        default=default, repr=not secret, metadata={"description": description, "secret": secret, **bounds}
    )


def parse_value(source: str, text: str, default: Any, metadata: Mapping[str, Any]) -> Any:
    """Convert the text to the type of the default and check its bounds."""
    kind = cast("type[object]", type(default))
    try:
        if kind is bool:
            return BOOLEANS[text.lower()]
        value = int(text) if kind is int else float(text) if kind is float else text
    except (ValueError, KeyError):
        expected = {"bool": "yes or no", "int": "a whole number", "float": "a number"}[kind.__name__]
        shown = "" if metadata["secret"] else f", not {text!r}"
        raise BadSettings(problem=f"{source} must be {expected}{shown}.") from None
    if metadata["one_of"] and value not in metadata["one_of"]:
        expected = " or ".join(f"`{word}`" for word in metadata["one_of"])
        raise BadSettings(problem=f"{source} must be {expected}, not {value!r}.")
    minimum, maximum = metadata["minimum"], metadata["maximum"]
    if isinstance(value, (int, float)):
        if isinstance(value, float) and not math.isfinite(value):
            raise BadSettings(problem=f"{source} must be a finite number.")
        if minimum is not None and value < minimum:
            raise BadSettings(problem=f"{source} must be at least {minimum}, not {value}.")
        if maximum is not None and value > maximum:
            raise BadSettings(problem=f"{source} must be at most {maximum}, not {value}.")
    return value


def check_address(variable: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_address = not url or (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/")
        )
    except ValueError:
        is_address = False
    if not is_address:
        raise BadSettings(
            problem=f"{variable} must be an address such as https://easel.example.org, without a path."
        )


def check_model(provider: str, model: str, api_key: str, base_url: str) -> None:
    """Check the host's default model, as far as it is set."""
    try:
        if provider:
            parse_provider(provider, "EASEL_PROVIDER")
        if api_key:
            check_key(api_key, "EASEL_API_KEY")
        if base_url:
            check_base_url(base_url, "EASEL_BASE_URL")
    except BadInput as problem:
        raise BadSettings(problem=problem.message) from None
    given = {"EASEL_API_KEY": api_key, "EASEL_BASE_URL": base_url, "EASEL_MODEL": model}
    if not provider and (alone := [name for name, value in given.items() if value]):
        raise BadSettings(problem=f"{alone[0]} needs EASEL_PROVIDER too: one of {', '.join(Provider)}.")
