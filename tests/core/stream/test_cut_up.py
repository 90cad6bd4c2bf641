"""Base64 that was cut up, by whatever stands between its pieces, and over the strings of a value."""

import base64
import json
import random
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from easel.core.stream.encoded import holds_encoded
from easel.core.stream.payload_limit import LIMIT, light_value, markers_in, restored
from tests.core.stream.costs import least_seconds
from tests.core.stream.test_encoded import CHANCE, CONTENTS, NOISE, STANDARD, URL_SAFE
from tests.requirements import case, rule

SIZES = (20, 39, 64, 76, 500, 1_500)


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def mixed(text: str) -> str:
    """Both alphabets in one text."""
    return "".join(
        char if at % 7 else char.translate(str.maketrans("+/", "-_")) for at, char in enumerate(text)
    )


JOINED: dict[str, Callable[[list[str]], str]] = {
    "commas": ",".join,
    "commas and spaces": ", ".join,
    "semicolons": ";".join,
    "bars": "|".join,
    "dots": ".".join,
    "many dots": ".....".join,
    "rules": "-----".join,
    "colons": "::".join,
    "line breaks in HTML": "<br>".join,
    "items in HTML": lambda pieces: "<ul>" + "".join(f"<li>{piece}</li>" for piece in pieces) + "</ul>",
    "what nobody sees": "\u200b".join,
    "spaces of another script": "\u3000".join,
    "dots of another script": "·".join,
    "quoted as in a mail": lambda pieces: "\n".join(f"> {piece}" for piece in pieces),
    "a comment": lambda pieces: "\n".join(f"# {piece}" for piece in pieces),
    "another comment": lambda pieces: "\n".join(f"    // {piece}" for piece in pieces),
    "a list in YAML": lambda pieces: "\n".join(f"  - {piece}" for piece in pieces),
    "a difference": lambda pieces: "\n".join(f"+{piece}" for piece in pieces),
    "numbered lines": lambda pieces: "\n".join(f"{at:04d}: {piece}" for at, piece in enumerate(pieces)),
    "counted lines": lambda pieces: "\n".join(f"{at}) {piece}" for at, piece in enumerate(pieces)),
    "a table": lambda pieces: "\n".join(f"| {at} | {piece} |" for at, piece in enumerate(pieces)),
    "lines that go on": "\\\n".join,
    "quoted-printable": "=\n".join,
    "sums in code": lambda pieces: "\n".join(f'x += "{piece}";' for piece in pieces),
    "a list in Python": repr,
    "objects in JSON": lambda pieces: json.dumps(
        [{"chunk": piece, "index": at} for at, piece in enumerate(pieces)], indent=2
    ),
}


@rule("CC-23", "CC-26")
@case("R3")
@pytest.mark.parametrize("how", JOINED)
@pytest.mark.parametrize("content", ["random bytes", "PNG", "prose", "source", "JSON"])
def test_whatever_stands_between_the_pieces_they_are_seen(content: str, how: str):
    text = base64.b64encode(CONTENTS[content]).decode()
    for source in (text, text.replace("+", "-").replace("/", "_"), mixed(text)):
        for size in SIZES:
            assert holds_encoded(JOINED[how](cut(source, size))), size


@rule("CC-23")
@pytest.mark.parametrize("how", [how for how in JOINED if how != "objects in JSON"])
def test_pieces_of_four_letters_are_seen_too(how: str):
    assert holds_encoded(JOINED[how](cut(base64.b64encode(NOISE).decode(), 4)))


@rule("CC-23")
def test_letters_that_stand_alone_are_seen():
    for between in " ", ",", "\u200b", " | ":
        assert holds_encoded(between.join(STANDARD[:4_000]))


@rule("CC-23")
def test_one_run_of_both_alphabets_is_seen():
    assert holds_encoded(mixed(STANDARD))
    assert holds_encoded("\n".join(cut(mixed(STANDARD), 76)))
    assert holds_encoded("Here: " + mixed(STANDARD)[: LIMIT + 1])
    assert not holds_encoded("Here: " + mixed(STANDARD)[:LIMIT])


@rule("CC-23")
def test_pieces_that_were_padded_and_then_put_together_are_one_run():
    whole = "".join(base64.b64encode(CHANCE.randbytes(1_000)).decode() for _ in range(20))
    assert whole.count("=") >= 20
    assert holds_encoded(whole)


def test_only_the_pieces_count():
    pieces = cut(STANDARD[:LIMIT], 64)
    assert not holds_encoded("; ".join(pieces))
    assert holds_encoded("; ".join([*pieces, STANDARD[LIMIT : LIMIT + 64]]))


# --- over the strings of a value --------------------------------------------------------------------------------------

SPREAD: dict[str, Callable[[list[str]], Any]] = {
    "a list": list,
    "a list of lists": lambda pieces: [[piece] for piece in pieces],
    "pairs": lambda pieces: [pieces[at : at + 2] for at in range(0, len(pieces), 2)],
    "a list of objects": lambda pieces: [{"chunk": piece} for piece in pieces],
    "objects with more in them": lambda pieces: [
        {"index": at, "total": len(pieces), "name": "photo.png", "data": piece, "last": False}
        for at, piece in enumerate(pieces)
    ],
    "an object": lambda pieces: {f"part{at}": piece for at, piece in enumerate(pieces)},
    "an object by number": lambda pieces: {str(at): piece for at, piece in enumerate(pieces)},
    "an object of objects": lambda pieces: {f"p{at}": {"d": piece} for at, piece in enumerate(pieces)},
    "keys": lambda pieces: {piece: at for at, piece in enumerate(pieces)},
    "a chain": lambda pieces: chain(pieces[:100]),
    "prefixed": lambda pieces: [f"{at:03d}: {piece}" for at, piece in enumerate(pieces)],
    "with words of their own": lambda pieces: [
        {"part": piece, "says": " ".join(CHANCE.choices(SAYS, k=4))} for piece in pieces
    ],
}
SAYS = textwrap.wrap(
    "here is some more of the picture that I have promised you to send over as soon as it is done", 8
)


def chain(pieces: list[str]) -> Any:
    whole: Any = None
    for piece in pieces:
        whole = {"piece": piece, "next": whole}
    return whole


@rule("CC-23", "RS-35")
@case("R3")
@pytest.mark.parametrize("size", [39, 76, 500, 1_500, 2_000])
@pytest.mark.parametrize("how", SPREAD)
def test_pieces_are_seen_however_they_are_spread_over_a_value(how: str, size: int):
    for source in (STANDARD, URL_SAFE, mixed(STANDARD), base64.b64encode(CONTENTS["prose"]).decode()):
        value = {
            "title": "A picture",
            "state": SPREAD[how](cut(source, size)),
            "rows": [{"id": at, "name": "Ann"} for at in range(50)],
        }
        light, offloaded = light_value(value)
        assert offloaded, size
        assert (light["title"], light["rows"]) == (value["title"], value["rows"]), "and nothing else is moved"
        fetched = {one.artifact_id: one.content for one in offloaded}
        assert markers_in(light) == set(fetched)
        assert restored(light, fetched) == value


@rule("CC-23", "RS-35")
@pytest.mark.parametrize("size", [4, 8, 20])
@pytest.mark.parametrize(
    "how", ["a list", "a list of lists", "a list of objects", "objects with more in them", "an object"]
)
def test_small_pieces_are_seen_in_a_value_too(how: str, size: int):
    assert light_value(SPREAD[how](cut(STANDARD, size)))[1]


@rule("RS-35")
def test_the_smallest_container_that_holds_it_is_moved_and_each_by_itself():
    value = {
        "pictures": {
            "one": [{"c": piece} for piece in cut(STANDARD[:5_000], 76)],
            "two": cut(STANDARD[5_000:9_000], 900),
        },
        "note": {"text": "Both are large", "more": ["a", "b"]},
    }
    light, offloaded = light_value(value)
    assert light["note"] == value["note"]
    assert {name: picture["redacted"] for name, picture in light["pictures"].items()} == {
        "one": True,
        "two": True,
    }
    assert len(offloaded) == 2


@rule("RS-35")
def test_a_key_that_is_moved_takes_its_object_along_and_what_was_in_it_once():
    value = {"a": {STANDARD: {"b": STANDARD}, "c": cut(STANDARD, 100)}, "d": 1}
    light, offloaded = light_value(value)
    assert light["a"]["redacted"] is True
    assert len(offloaded) == 1
    assert light["d"] == 1


# --- and what is none -------------------------------------------------------------------------------------------------


def test_values_that_are_each_a_whole_are_not_one():
    def picture(size: int) -> str:
        return "iVBORw0KGgo" + base64.b64encode(CHANCE.randbytes(size)).decode()

    for value in (
        [{"name": "Ann", "avatar": picture(900)} for _ in range(20)],
        [{"name": "Ann", "avatar": f"data:image/png;base64,{picture(900)}"} for _ in range(20)],
        [base64.b64encode(CHANCE.randbytes(1_000)).decode() for _ in range(20)],
        {f"copy {at}": {"of": STANDARD[:LIMIT]} for at in range(5)},
    ):
        assert light_value(value) == (value, ())


MEGABYTES = 5_000_000
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def random_letters(size: int) -> str:
    return base64.urlsafe_b64encode(random.Random(4).randbytes(size * 3 // 4)).decode()


HARD: dict[str, Callable[[int], Any]] = {
    "names in a text": lambda size: ",".join(cut(random_letters(size), 21)),
    "names in lines": lambda size: "\n".join(cut(random_letters(size), 21)),
    "odd words": lambda size: "aBc9 ." * (size // 6),
    "odd words with this and that between": lambda size: "".join(
        f"{piece}{sign}"
        for piece, sign in zip(cut(random_letters(size), 4), ".,;:|!?()[]{}<>" * size, strict=False)
    ),
    "what recurs": lambda size: "xY,aB3;" * (size // 7),
    "a list of names": lambda size: cut(random_letters(size), 21),
    "rows with names": lambda size: [{"id": name, "n": 1} for name in cut(random_letters(size), 21)],
    "deep": lambda size: [nested(150, "aB3xY") for _ in range(size // 1_000)],
    "deep around what is short enough": lambda size: [
        nested(100, cut(random_letters(1_900), 100)) for _ in range(size // 3_000)
    ],
}


def nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value, "aB3xY"]
    return value


@case("R3")
@pytest.mark.parametrize("what", HARD)
def test_the_time_it_takes_to_look_closely_is_in_proportion_too(what: str):
    small, large = HARD[what](MEGABYTES // 10), HARD[what](MEGABYTES)
    most = 30 * least_seconds(lambda: light_value(small)) + 0.1
    assert least_seconds(lambda: light_value(large), enough=most) < most
