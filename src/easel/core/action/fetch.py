"""The actions that call `local__Fetch`: the placeholders of their `url`, and the hosts that they may reach.

Owns the check of a template, its filling, and that a canvas reaches no host before a person accepts it. A
value is percent-encoded, so that it is part of one segment of the path or of one value of the query. RS-74
"""

import re
from collections.abc import Sequence
from urllib.parse import quote

from easel.core.canvas.actions import Action, CallTool
from easel.core.validation import refuse
from easel.core.values.template import Template
from easel.core.web.hosts import FETCH, OWN_PAGE, is_listed, parse_url
from easel.errors import Forbidden

_HEAD = re.compile(r"https?://[^/?#]+[/?#]", re.IGNORECASE)  # scheme, host and port, and what ends them


def check_fetch(action: CallTool) -> None:
    """Raise `BadInput` if scheme and host of the `url` are not literal, or the host is not listed."""
    url, at = action.template.get("url"), f"actions.{action.action_id}.args.url"
    if action.tool != FETCH or url in (None, OWN_PAGE):
        return
    parts = url.parts if isinstance(url, Template) else (url,)
    if not isinstance(parts[0], str) or (len(parts) > 1 and not _HEAD.match(parts[0])):
        refuse(
            at, "must be a text whose scheme and host have no placeholder, like https://host/{{input.id}}."
        )
    page = parse_url("".join(part if isinstance(part, str) else "x" for part in parts), at)
    if not is_listed(page, action.hosts):
        refuse(at, f"toolPolicy.hosts does not list {page.authority}.")


def check_is_accepted(action: Action, *, is_accepted: bool) -> None:
    """Raise `Forbidden` for a fetch of a canvas whose hosts no person has accepted."""
    if is_accepted or not isinstance(action, CallTool) or action.tool != FETCH:
        return
    if action.template.get("url") != OWN_PAGE:
        raise Forbidden(
            problem=f"actions.{action.action_id} reaches a host, and no person has accepted the canvas as it "
            "is now. Accept it, then run it again."
        )


def fill_url(template: Template, texts: Sequence[str | None], at: str, *, missing_is_empty: bool) -> str:
    """Return the address with each value percent-encoded. Raises `BadInput` for a missing value. RS-57

    Empty text in the path counts as missing: `/items/` names something else than `/items/7`.
    """
    filled, remaining = "", iter(texts)
    for part in template.parts:
        if isinstance(part, str):
            filled += part
            continue
        text = next(remaining)
        if (text is None or (not text and "?" not in filled)) and not missing_is_empty:
            refuse(at, f'{part} has no value; set it, or set "missing": "empty" in the action.')
        filled += quote(text or "", safe="", errors="replace")
    return str(parse_url(filled, at))
