"""The page of a canvas that has none of its own: its actions as buttons, its state as a form and tables.

Made of the same hooks as any other page (`data-gsv-action`, `data-gsv-model`) and held by the same policy. What follows from the spec stands in
the HTML; what follows from the state is drawn by `gsv_generated.js`, and follows its changes.
"""

import html
import json
import re
from collections.abc import Mapping
from typing import Any, cast

from easel.core.canvas.canvas import Canvas

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[._:-]+")

_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{title}</title>
  <link rel="stylesheet" href="../generated.css">
</head>
<body>
  {says}
  <section id="actions" aria-label="Actions">{actions}</section>
  <main id="state" aria-label="State"></main>
  <p id="nothing" hidden>This canvas has neither state nor actions yet. Give it a spec with <code>canvas.patch</code>, or a page as <code>assets/index.html</code>.</p>
  <script type="application/json" id="places">{places}</script>
  <script src="../generated.js" crossorigin="anonymous"></script>
</body>
</html>
"""


def generated(canvas: Canvas) -> bytes:
    spec = canvas.spec
    actions = _members(spec.get("actions"))
    said = spec.get("description")
    return _PAGE.format(
        title=html.escape(canvas.title),
        says=f"<p>{html.escape(said)}</p>" if isinstance(said, str) and said else "",
        actions="".join(_button(action_id, _members(action)) for action_id, action in actions.items()),
        places=_json(_places(spec, actions)),
    ).encode()


def _button(action_id: str, action: Mapping[str, Any]) -> str:
    title = action.get("title") or words(action_id)
    does = action.get("description") or {"tool.call": f"Runs {action.get('tool')}", "session.send": "Asks the agent"}.get(
        str(action.get("kind")), "Changes the state"
    )
    name = html.escape(action_id)
    return (
        f'<div class="action"><button type="button" data-gsv-action="{name}" title="{html.escape(str(does))}">{html.escape(str(title))}</button>'
        f'<span class="outcome" data-outcome="{name}" role="status"></span>'
        f'<button type="button" class="stop" data-stop="{name}" hidden>Stop</button><pre class="value" data-said="{name}" hidden></pre></div>'
    )


def _places(spec: Mapping[str, Any], actions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where a person may write, and where results come to stand: dot paths by their parts."""
    writable = spec.get("writable")
    saves = [action.get("saveAs") for action in map(_members, actions.values())]
    return {
        "writable": [[name] for name in _members(spec.get("state"))] if writable is None else [str(one).split(".") for one in writable],
        "results": [one.split(".") for one in saves if isinstance(one, str)],
    }


def words(name: str) -> str:
    """`refreshLogs` as a person would say it."""
    said = " ".join(filter(None, _WORDS.split(name)))
    return said[:1].upper() + said[1:].lower() if said else name


def _members(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _json(value: Any) -> str:
    """Inside of HTML: nothing in it can end the element that it stands in."""
    return json.dumps(value).replace("<", "\\u003c")
