"""What Easel does not do: it keeps no registry of agents, and nothing that happens on a canvas or in a run changes one. CC-01"""

from __future__ import annotations

import re
from pathlib import Path

import easel
from easel.core.stream.envelope import EVENT_TYPES
from easel.edges.http.routes import ROUTES, SOCKETS
from easel.edges.methods import METHODS
from easel.settings import rows
from easel.stores import migrations
from tests.requirements import rule

SOURCE = Path(easel.__file__).parent
# The six that the contract keeps apart, and what would load or list them.
THEIRS = re.compile(r"persona|manifest|capabilit|framework|registry|loader", re.IGNORECASE)


@rule("CC-01")
def test_there_is_no_place_where_an_agents_configuration_could_be_written() -> None:
    tables = [
        name
        for one in migrations.available("postgres")
        for name in re.findall(r"create table (\w+)|add column (\w+)", one.sql)
    ]
    names = {
        "routes": [row.path for row in (*ROUTES, *SOCKETS)],
        "methods": list(METHODS),
        "events": list(EVENT_TYPES),
        "settings": [row.name for row in rows()],
        "tables and columns": [part for pair in tables for part in pair if part],
        "modules": [path.stem for path in SOURCE.rglob("*.py")],
    }
    found = {kind: [name for name in them if THEIRS.search(name)] for kind, them in names.items()}
    assert not any(found.values()), found
