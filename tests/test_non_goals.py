"""Easel has no registry of agents: no route, method, event, setting or table configures one. CC-01"""

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
# Words of agent registries, which the contract excludes.
REGISTRY_WORDS = re.compile(r"persona|manifest|capabilit|framework|registry|loader", re.IGNORECASE)

OTHER_REGISTRIES = {"host/nodes/registry.py", "host/tools/registry.py"}


@rule("CC-01")
def test_no_name_refers_to_the_configuration_of_agents() -> None:
    tables = [
        name
        for migration in migrations.available("postgres")
        for name in re.findall(r"create table (\w+)|add column (\w+)", migration.sql)
    ]
    modules = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")}
    names = {
        "routes": [row.path for row in (*ROUTES, *SOCKETS)],
        "methods": list(METHODS),
        "events": list(EVENT_TYPES),
        "settings": [row.name for row in rows()],
        "tables and columns": [part for pair in tables for part in pair if part],
        "modules": modules - OTHER_REGISTRIES,
    }
    found = {kind: [name for name in listed if REGISTRY_WORDS.search(name)] for kind, listed in names.items()}
    assert not any(found.values()), found
