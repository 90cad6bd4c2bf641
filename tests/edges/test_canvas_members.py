"""The table from which panel and question print the members of an action: none is forgotten. RS-72"""

from __future__ import annotations

import re
from importlib.resources import files

from tests.requirements import rule
from tests.spec_reference import KINDS, known_members

TABLE = (files("easel") / "ui" / "canvas_members.js").read_text()


def rows(name: str) -> list[str]:
    """Return the members that have a row in a table of `canvas_members.js`."""
    [body] = re.findall(rf"export const {name} = \{{\n(.*?)^\}};", TABLE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^  (\w+):", body, re.MULTILINE)


@rule("RS-72", "RS-64")
def test_every_member_of_an_action_and_of_its_policy_has_a_row() -> None:
    of_actions = set[str]().union(*map(known_members, KINDS))
    assert sorted(rows("ACTION_MEMBERS")) == sorted(of_actions)
    assert sorted(rows("POLICY_MEMBERS")) == sorted(known_members("toolPolicy"))
