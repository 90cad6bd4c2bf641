"""The documents agree with the code: generated tables are current, and every name in them exists.

After changing a setting, an error, a route, an event type, a metric, a command or the transitions of a run,
refresh the generated parts:

    .venv/bin/python -m tests.test_docs --write

Without `--write` it lists the stale parts.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from easel import settings, settings_oauth
from easel.core.canvas.spec import parse_spec
from easel.edges.http.routes import ROUTES
from easel.edges.methods import METHODS
from easel.errors import BadInput
from tests import spec_reference
from tests.docs_tables import (
    GENERATED,
    PART,
    PROJECT,
    README,
    all_errors,
    commands,
    documents,
    name_of,
    parts_of,
    refresh,
    run_diagram,
)
from tests.spec_reference import ABSENT, GROUPS, REQUIRED
from tests.test_architecture import MAX_LINE_LENGTH, machine_paths

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("part", GENERATED)
def test_generated_part_is_current(part: str) -> None:
    path, print_part = GENERATED[part]
    written = parts_of((PROJECT / path).read_text(encoding="utf-8"))
    assert written[part] == print_part(), (
        f"{path} is stale: run `.venv/bin/python -m tests.test_docs --write`"
    )


def test_refreshing_changes_only_the_generated_parts() -> None:
    text = "before\n<!-- generated: life -->\nold\n<!-- end of generated -->\nafter\n"
    fresh = refresh(text)
    assert fresh.startswith("before\n<!-- generated: life -->\n")
    assert fresh.endswith("<!-- end of generated -->\nafter\n")
    assert parts_of(fresh) == {"life": run_diagram()}
    assert refresh(fresh) == fresh


def test_documents_show_the_newest_migration() -> None:
    existing = sorted((PROJECT / "src/easel/stores/migrations/sqlite").glob("*.sql"))
    newest = existing[-1].stem.replace("_", " ", 1)
    tutorial = (PROJECT / "docs/tutorial.md").read_text(encoding="utf-8")
    assert f"migrations={len(existing)} newest='{newest}'" in tutorial
    version = int(newest.split()[0])
    assert f"schema version {version}," in (PROJECT / "docs/guide/operate.md").read_text(encoding="utf-8")


def test_guide_lists_every_method_of_the_gateway() -> None:
    text = (PROJECT / "docs/guide/canvases.md").read_text(encoding="utf-8")
    listed = {
        name
        for row in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
        for name in re.findall(r"`([a-z.]+)`", row)
    }
    assert {*METHODS, "canvas.subscribe", "canvas.unsubscribe"} - listed == set()


@pytest.mark.parametrize("place", [place for place in GROUPS if place != "action"])
def test_spec_reference_has_exactly_the_known_members(place: str) -> None:
    assert spec_reference.listed_members(place) == spec_reference.known_members(place)


@pytest.mark.parametrize(
    "place, member",
    [(place, member) for place, (_, members) in GROUPS.items() for member in members],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_example_and_default_of_a_spec_member_are_valid(place: str, member: spec_reference.Member) -> None:
    spec_reference.read(place, member.name, member.example)
    if member.default is REQUIRED:
        with pytest.raises(BadInput):
            spec_reference.read(place, member.name, ABSENT)
    # Without actions the other members of the smallest spec would be invalid.
    elif member.default is not ABSENT and member.name != "actions":
        assert spec_reference.read(place, member.name, member.default) == spec_reference.read(
            place, member.name, ABSENT
        )


def test_canvas_of_the_tutorial_is_valid() -> None:
    text = (PROJECT / "docs/tutorial.md").read_text(encoding="utf-8")
    section = text.partition("Your first own canvas")[2]
    written = re.search(r"spec\.json <<'END'\n(.*?)\nEND", section, re.DOTALL)
    page = re.search(r"index\.html <<'END'\n(.*?)\nEND", section, re.DOTALL)
    assert written
    assert page
    spec = parse_spec(json.loads(written[1]))
    assert set(re.findall(r'data-gsv-action="(\w+)"', page[1])) == set(spec.actions)
    for path in re.findall(r'data-gsv-(?:text|model)="state\.([\w.]+)"', page[1]):
        assert path.partition(".")[0] in spec.state


def test_error_names_are_unique() -> None:
    names = [error.code for error in all_errors()]
    assert len(names) == len(set(names)) > 0


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_prose_is_wrapped(path: Path) -> None:
    """Code, tables and a link alone may be longer."""
    prose = FENCED.sub("", PART.sub("", path.read_text(encoding="utf-8")))
    lines = [line for line in prose.splitlines() if len(line) > MAX_LINE_LENGTH]
    assert [line for line in lines if not line.lstrip().startswith("|") and len(line.split()) > 2] == []


# --- names in the documents exist ---------------------------------------------------------------------------

SPAN = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
OUTSIDE = re.compile(r"[a-z]+:")
# Variables of the test suite.
SUITE_VARIABLES = {"EASEL_SOAK_SECONDS"}


def prose(text: str) -> str:
    return SPAN.sub("", FENCED.sub("", text))


def code_in(text: str) -> str:
    """Return the content of code blocks and code spans."""
    return "\n".join([*FENCED.findall(text), *SPAN.findall(FENCED.sub("", text))])


def links_in(text: str) -> list[str]:
    return [first or second for first, second in LINK.findall(prose(text))]


def anchors_in(text: str) -> set[str]:
    """Return the fragments of the headings."""
    words = (
        re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in HEADING.findall(FENCED.sub("", text))
    )
    return {re.sub(r"\s", "-", heading) for heading in words}


def broken_links(text: str, path: Path) -> list[str]:
    broken: list[str] = []
    for link in links_in(text):
        if OUTSIDE.match(link):
            continue
        target, _, fragment = link.partition("#")
        found = (path.parent / unquote(target)).resolve()
        if target and not (found.exists() and found.is_relative_to(PROJECT)):
            broken.append(f"{name_of(path)}: {link} does not exist")
        elif fragment and fragment not in anchors_in(found.read_text(encoding="utf-8") if target else text):
            broken.append(f"{name_of(path)}: {link} names a missing heading")
    return broken


def names_in(pattern: str, text: str) -> set[str]:
    return set(re.findall(pattern, code_in(text)))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def is_route(path: str) -> bool:
    """Return whether an address in a document is a route, with its parameters filled in or named."""
    shape = re.sub(r"(\{\w+\}|\$\{?\w+\}?|run_\w+|…)", "X", path.partition("?")[0].rstrip("/")) or "/"
    return any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", row.path), shape) for row in ROUTES)


def manuals() -> list[Path]:
    """Return the documents for users. Design papers and the change log may name other versions."""
    return [path for path in documents() if path.name != "CHANGELOG.md" and "design" not in path.parts]


def unknown_names(text: str, name: str) -> list[str]:
    variables = {row.variable for row in settings.rows()} | SUITE_VARIABLES
    first_words = {command.split()[0] for command in commands()}
    targets = names_in(r"\bmake ([a-z]+)\b", text) - make_targets()
    verbs = names_in(r"(?<!the )\beasel (?!easel\b)([a-z]+)\b", text) - first_words
    given = names_in(r"\bEASEL_[A-Z_]*[A-Z]\b", text) - variables
    unknown = {variable for variable in given if not settings_oauth.is_of_family(variable)}
    paths = names_in(r"(?:\$URL|:\d+|(?<![\w.~]))(/(?:api|openapi)[\w/{}$…?=.-]*)", text)
    return [
        *(f"{name}: there is no `make {target}`" for target in sorted(targets)),
        *(f"{name}: there is no `easel {verb}`" for verb in sorted(verbs)),
        *(f"{name}: there is no setting {variable}" for variable in sorted(unknown)),
        *(f"{name}: there is no route {path}" for path in sorted(paths) if not is_route(path)),
    ]


def test_relative_links_lead_to_files() -> None:
    assert [
        complaint
        for path in documents()
        for complaint in broken_links(path.read_text(encoding="utf-8"), path)
    ] == []


def test_targets_commands_settings_and_routes_in_manuals_exist() -> None:
    assert [
        complaint
        for path in manuals()
        for complaint in unknown_names(path.read_text(encoding="utf-8"), name_of(path))
    ] == []


def test_no_document_names_a_path_of_one_machine() -> None:
    temporary = re.compile(r"(?<![\w.~:/-])/tmp/\S+")
    for path in documents():
        text = path.read_text(encoding="utf-8")
        assert machine_paths(text, name_of(path)) == []
        assert temporary.findall(text) == [], name_of(path)


def test_every_document_is_linked_from_the_readme() -> None:
    reached: set[Path] = set()
    pending = [README]
    while pending:
        path = pending.pop()
        if path in reached or path.suffix != ".md" or not path.exists():
            continue
        reached.add(path)
        targets = [
            link.partition("#")[0]
            for link in links_in(path.read_text(encoding="utf-8"))
            if not OUTSIDE.match(link)
        ]
        for target in filter(None, targets):
            found = (path.parent / unquote(target)).resolve()
            pending += sorted(found.glob("*.md")) if found.is_dir() else [found]
    assert [name_of(path) for path in documents() if path not in reached] == []


WRONG = [
    # text, complaint
    ("[see](guide/nowhere.md)", "does not exist"),
    ("[see](README.md#no-such-heading)", "names a missing heading"),
    ("[above](#nowhere)\n# Somewhere", "names a missing heading"),
    ("![picture](picture.png)", "does not exist"),
    ("Type `make coffee`.", "there is no `make coffee`"),
    ("```sh\nmake tea\n```", "there is no `make tea`"),
    ("Type `easel dance --port 1`.", "there is no `easel dance`"),
    ("Set `EASEL_PROT` to 1.", "there is no setting EASEL_PROT"),
    ("Ask `GET /api/moon`.", "there is no route /api/moon"),
    ("```sh\ncurl $URL/api/runs/$RUN/dance\n```", "there is no route /api/runs/$RUN/dance"),
]


@pytest.mark.parametrize("text, complaint", WRONG)
def test_unknown_name_in_a_document_is_found(text: str, complaint: str) -> None:
    found = [*broken_links(text, PROJECT / "x.md"), *unknown_names(text, "x.md")]
    assert len(found) == 1
    assert complaint in found[0]


RIGHT = [
    "[see](LICENSE), [there](docs/index.md) and [here](#top)\n# Top",
    "`make run`, `easel up --port 0`, `EASEL_PORT`, `/api/runs?session_id=main`",
    "`POST /api/runs/{run_id}/cancel`, `/api/runs/…/events`",
    "we make coffee and the easel is new; [elsewhere](https://example.org/x)",
    "`[not](a-link)`",
]


@pytest.mark.parametrize("text", RIGHT)
def test_known_name_in_a_document_passes(text: str) -> None:
    assert broken_links(text, PROJECT / "x.md") == []
    assert unknown_names(text, "x.md") == []


# --- refreshing ---------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    stale = [
        path
        for path in documents()
        if refresh(path.read_text(encoding="utf-8")) != path.read_text(encoding="utf-8")
    ]
    for path in stale:
        if "--write" in arguments:
            path.write_text(refresh(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{'refreshed' if '--write' in arguments else 'stale'}: {name_of(path)}")
    return 1 if stale and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
