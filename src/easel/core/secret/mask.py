"""Replacement of known secrets by their names, in everything that comes back from a call. RS-66

Owns how a secret is recognised. A text is searched as it is and simplified: escapes of JSON, URLs, HTML,
shells and terminals are decoded, also inside each other, and white space, quotes and backslashes are left
out. The value is simplified alike, and its Base64 is searched too. Of a long value every part of 24
characters is recognised (48 in Base64), because output is cut and wrapped.

The index has samples of every value, so close together that each such part contains one. The text is looked
up in it character by character, so the time is linear in its length and does not depend on the secrets.
`ACTIVE` is the mask of the call that runs: logs and audit records use it.
"""

import base64
import html
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import unquote

MIN_LENGTH = 6  # of a value, and of its beginning at the end of a text
_SAMPLE_LENGTH = 4  # and the least length of a form: a simplified value is shorter
PART_LENGTH, BASE64_PART_LENGTH = 24, 48
CUT = "left out] …\n"  # ends the note in a shortened output, see `sandbox.output` and `node.calls`
HELD_LENGTH = 512  # characters of a stream that are held while more text waits: any part with its escapes
_MIN_HELD_PART = 4
_MAX_EXACT_LENGTH = 1_000  # a longer value is searched in its simplified form only
_REACH = 2 * BASE64_PART_LENGTH  # to each side of a sample; the places that are found overlap
_MAX_ORIGINS = 16  # of a sample that occurs often in the values
_MAX_SEARCHED_LENGTH = 500_000  # of all forms
_MAX_NESTING = 4  # of escapes
_PAUSE_LENGTH = 2_000  # characters of forms between two pauses
_END = "\0"  # between two forms; not in a value, which is a variable of a process

_ESCAPE = re.compile(
    r"(?:%[0-9A-Fa-f]{2})+|(?:\\u[0-9A-Fa-f]{4})+|(?:\\x[0-9A-Fa-f]{2})+|(?:\\[0-7]{3})+|\\."
    r"|&(?:amp|lt|gt|quot|apos|#[0-9]{2,3}|#x[0-9A-Fa-f]{2});|\x1b\[[0-9;]*[A-Za-z]",
    re.DOTALL,
)
_NOISE = re.compile(r"""[\s\\'"`]+""")
_UNFINISHED_ESCAPE = re.compile(r"(?:[\\%][0-9A-Za-z]{0,5}|&[#0-9A-Za-z]{0,5}|\x1b\[?[0-9;]*)\Z")
_CONTROL = "abefnrtvE0"  # after a backslash: the letter of a control character
_IN_URLS = str.maketrans("-_", "+/")  # Base64 in URLs becomes ordinary Base64

# A text with the begin and the end of each of its characters in the text that it was made of.
View = tuple[str, Sequence[int], Sequence[int]]
Place = tuple[int, int, str]  # begin, end and the name of the secret


class SecretMask:
    """Replaces the values of some secrets by `[secret NAME]`."""

    def __init__(self, values: Mapping[str, str], pause: Callable[[], None] = lambda: None) -> None:
        """Build the index of the values. `pause` is called often, so that other threads can run."""
        forms = {
            form: (name, min(len(form), part))
            for name, value in sorted(values.items())
            for form, part in _forms_of(value, pause)
            if len(form) >= _SAMPLE_LENGTH
        }
        self._forms = sorted(forms, key=len, reverse=True)  # where one begins with another, the longer one
        self._names = [forms[form] for form in self._forms]
        self._all = _END.join(["", *self._forms, ""])
        self._is_exact = any(len(value) <= _MAX_EXACT_LENGTH for value in values.values())
        self._starts: list[int] = []  # of each form in `_all`
        self._samples: dict[str, tuple[int, ...]] = {}
        start, pause_at = 1, 0
        for form, (_, part) in zip(self._forms, self._names, strict=True):
            if start > pause_at:  # not for each of thousands of short lines
                pause()
                pause_at = start + _PAUSE_LENGTH
            self._starts.append(start)
            last = start + len(form) - _SAMPLE_LENGTH
            for at in (*range(start, last, part - _SAMPLE_LENGTH + 1), last):
                sample = self._all[at : at + _SAMPLE_LENGTH]
                origins = self._samples.get(sample, ())
                self._samples[sample] = origins if len(origins) == _MAX_ORIGINS else (*origins, at)
            start += len(form) + 1

    def text(self, text: str) -> str:
        """Return the text with every secret replaced."""
        return _replace(text, self.find(text))

    def find(self, text: str, *, is_end: bool = False) -> list[Place]:
        """Return the places of secrets in order. Overlapping places are joined.

        `is_end`: the text was cut at its end, where it may have the beginning of a secret.
        """
        views = [_unchanged(text), _simplify(text)] if self._is_exact else [_simplify(text)]
        places = [place for view in views for place in self._find_in(view)]
        if (cut := text.find(CUT)) >= 0:
            after = cut + len(CUT)
            edges = self._find_edge(text[after : after + HELD_LENGTH], 1, is_end=False)
            places += [(after + start, after + stop, name) for start, stop, name in edges]
            before = text[: max(0, text.rfind("\n…", 0, cut))]
            places += self._find_edge(before, 1, is_end=True)
        if is_end:
            places += self._find_edge(text, MIN_LENGTH, is_end=True)
        return _join(places)

    def _find_in(self, view: View) -> Iterator[Place]:
        """Yield the places of forms and parts, which may overlap."""
        shown, starts, ends = view
        samples, done = self._samples, 0
        last = range(len(shown) - _SAMPLE_LENGTH + 1)
        for at in [at for at in last if shown[at : at + _SAMPLE_LENGTH] in samples]:
            if at + BASE64_PART_LENGTH <= done:  # no form or part with this sample goes on after it
                continue
            for origin in samples[shown[at : at + _SAMPLE_LENGTH]]:
                name, part = self._names[bisect_right(self._starts, origin) - 1]
                before = _count_equal(
                    shown[max(0, at - _REACH) : at][::-1], self._all[max(0, origin - _REACH) : origin][::-1]
                )
                after = _count_equal(shown[at : at + _REACH], self._all[origin : origin + _REACH])
                if before + after < part:
                    continue
                yield starts[at - before], ends[at + after - 1], name
                done = max(done, at + after)
                if after == _REACH:
                    break  # a value that repeats itself has many origins

    def _find_edge(self, text: str, at_least: int, *, is_end: bool) -> Iterator[Place]:
        """Yield the beginning of a secret at the end of the text, or the end of one at its begin."""
        offset = max(0, len(text) - HELD_LENGTH) if is_end else 0
        shown, starts, ends = _simplify(text[offset : offset + HELD_LENGTH])
        for size in range(min(len(shown), BASE64_PART_LENGTH), at_least - 1, -1):
            edge = shown[-size:] if is_end else shown[:size]
            for form, (name, _) in zip(self._forms, self._names, strict=True):
                if form.startswith(edge) if is_end else form.endswith(edge):
                    yield (offset + starts[-size], len(text), name) if is_end else (0, ends[size - 1], name)
                    return

    def may_continue_at(self, text: str) -> int:
        """Return where the end of the text begins that may be continued to a secret or a part of one."""
        offset, tail = max(0, len(text) - HELD_LENGTH), text[-HELD_LENGTH:]
        if len(self._all) > _MAX_SEARCHED_LENGTH:
            return offset  # nearly every end is somewhere in so many values, and a search would take long
        unfinished = _UNFINISHED_ESCAPE.search(tail)
        begin = unfinished.start() if unfinished else len(tail)
        for shown, starts, _ in (_unchanged(tail), _simplify(tail[:begin])):
            for size in range(min(len(shown), BASE64_PART_LENGTH), 0, -1):
                # A very short end may be in a value by chance: it must be the beginning of one.
                if (shown[-size:] if size >= _MIN_HELD_PART else _END + shown[-size:]) in self._all:
                    begin = min(begin, starts[-size])
                    break
        return offset + begin

    def value(self, value: Any) -> Any:
        """Return the JSON value with every secret replaced, also in names of members and in numbers."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            members = cast("Mapping[Any, Any]", value)
            return {self.value(name): self.value(item) for name, item in members.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in cast("list[Any]", value)]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            text = json.dumps(value)
            return value if (masked := self.text(text)) == text else masked
        return value


class MaskedStream:
    """Replaces secrets in a text that comes in pieces. A piece that may begin a secret is held back."""

    def __init__(self, mask: SecretMask) -> None:
        self._mask = mask
        self._held = ""
        self._covered = 0  # characters at the begin of `_held` whose secret was shown by its name

    def feed(self, text: str, has_more: bool = False) -> str:
        """Return the text that can be shown now. `has_more`: the next piece waits already."""
        text = self._held + text
        end = max(0, len(text) - HELD_LENGTH) if has_more else self._mask.may_continue_at(text)
        return self._show(text, end, self._mask.find(text))

    def close(self) -> str:
        """Return the rest; the beginning of a secret is replaced too, because its end may have been cut."""
        return self._show(self._held, len(self._held), self._mask.find(self._held, is_end=True))

    def _show(self, text: str, end: int, places: list[Place]) -> str:
        if self._covered:
            places = _join([(-1, self._covered, ""), *places])
        shown = _replace(text[:end], [place for place in places if place[0] < end])
        self._covered = max((stop - end for start, stop, _ in places if start < end < stop), default=0)
        self._held = text[end:]
        return shown


ACTIVE: ContextVar[SecretMask | None] = ContextVar("secrets", default=None)


def mask_active(text: str) -> str:
    """Return the text with the secrets of the running call replaced, if there is one."""
    mask = ACTIVE.get()
    return text if mask is None else mask.text(text)


def _forms_of(value: str, pause: Callable[[], None]) -> Iterator[tuple[str, int]]:
    """Yield the texts in which the value is recognised, with the length of a part of each."""
    pause()
    simple = {_simplify(text)[0] for text in {value, value.replace(" ", "+")}}  # a form writes + for a space
    lines = [line for line in map(str.strip, value.splitlines()) if MIN_LENGTH <= len(line) < PART_LENGTH]
    exact = [value, value.strip(), *lines] if len(value) <= _MAX_EXACT_LENGTH else []
    for form in {*simple, *(_simplify(line)[0] for line in lines), *exact}:
        yield form, PART_LENGTH
    data = value.encode()
    yield base64.b64encode(data).decode(), BASE64_PART_LENGTH
    for offset in range(3):  # after so many other bytes, without the characters that others share
        encoded = base64.b64encode(bytes(offset) + data).decode()
        form = encoded[(offset * 8 + 5) // 6 : (offset + len(data)) * 8 // 6]
        if offset or len(form) < BASE64_PART_LENGTH:
            yield form, BASE64_PART_LENGTH


def _unchanged(text: str) -> View:
    return text, range(len(text)), range(1, len(text) + 1)


def _simplify(text: str) -> View:
    """Return the text with its escapes decoded, and without white space, quotes and backslashes."""
    view = _unchanged(text)
    for _ in range(_MAX_NESTING):
        decoded = _substitute(view, _ESCAPE, _decode)
        if decoded is view:
            break
        view = decoded
    shown, starts, ends = _substitute(view, _NOISE, lambda _: "")
    return shown.translate(_IN_URLS), starts, ends


def _substitute(view: View, pattern: re.Pattern[str], replace: Callable[[str], str]) -> View:
    """Return the view with every match of the pattern replaced; the view itself if there is none."""
    text, starts, ends = view
    pieces, new_starts, new_ends, done = list[str](), list[int](), list[int](), 0
    for match in pattern.finditer(text):
        begin, end = match.span()
        decoded = replace(match[0])
        pieces += (text[done:begin], decoded)
        new_starts += starts[done:begin]
        new_ends += ends[done:begin]
        if decoded:
            new_starts += [starts[begin]] * len(decoded)
            new_ends += [ends[end - 1]] * len(decoded)
        done = end
    if not done:
        return view
    return "".join([*pieces, text[done:]]), [*new_starts, *starts[done:]], [*new_ends, *ends[done:]]


def _decode(code: str) -> str:
    """Return the characters that an escape means; nothing for control characters."""
    if code[0] == "%":
        return unquote(code)
    if code[0] == "&":
        return html.unescape(code)
    if code[0] == "\x1b":
        return ""
    if len(code) == len("\\n"):
        return "" if code[1] in _CONTROL else code[1]
    if code[1] == "u":
        return bytes.fromhex(code.replace("\\u", "")).decode("utf-16-be", "replace")
    if code[1] == "x":
        return bytes.fromhex(code.replace("\\x", "")).decode("utf-8", "replace")
    return bytes(int(digits, 8) & 0xFF for digits in code[1:].split("\\")).decode("utf-8", "replace")


def _count_equal(some: str, others: str) -> int:
    """Return with how many characters both texts begin alike."""
    if some == others:
        return len(some)
    pairs = enumerate(zip(some, others, strict=False))
    return next((size for size, (one, other) in pairs if one != other), min(len(some), len(others)))


def _join(places: list[Place]) -> list[Place]:
    """Return the places in order, those that overlap as one."""
    joined: list[Place] = []
    for start, stop, name in sorted(places, key=lambda place: (place[0], -place[1])):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop), joined[-1][2])
        else:
            joined.append((start, stop, name))
    return joined


def _replace(text: str, places: list[Place]) -> str:
    pieces, end = list[str](), 0
    for start, stop, name in places:
        pieces += [text[end : max(start, end)], f"[secret {name}]" if name else ""]
        end = stop
    return "".join([*pieces, text[end:]]) if pieces else text
