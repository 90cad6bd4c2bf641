"""Runs of Base64 in a text: where they are, and whether the text ends inside a run. CC-23, RS-35

Owns the recognition of Base64. A run is unbroken text of the standard or URL alphabet, or lines of such text
separated by white space, plain or escaped. Text after `base64,` in a data URI always counts. Other text is
recognised by its shape: a line must mix upper and lower case unlike words, names and paths, and the lines
together need a digit or a sign. Lines with other
separators are not joined, so that lists of identifiers and digests are not taken for Base64.
"""

import re
from collections.abc import Iterator

from easel.core.stream.marker import LIMIT

MIN_LINE = 40  # shorter text may be an identifier; programs wrap Base64 at 60, 64 or 76 characters
MIN_OPEN_LINE = 32  # a shorter line at the end of a text is not expected to become Base64
MIN_ZERO_SHARE = 0.75  # share of `A` and `/` in Base64 of uniform bytes; in DNA at most half are `A`
MAX_WORD_SHARE = 0.85  # share of characters in words; at most 0.8 in Base64, over 0.9 in names and paths

Span = tuple[int, int]

_SAMPLE = 4 * LIMIT  # characters of a line whose shape is checked
_WINDOW = 65_536  # characters that are searched at once, while no other thread runs
_ALPHABET = "[A-Za-z0-9+/_-]"
_LINE = re.compile(rf"(?<!{_ALPHABET}){_ALPHABET}{{{MIN_LINE},}}+|(?<=base64,){_ALPHABET}++")
_REST_OF_LINE = re.compile(rf"{_ALPHABET}*+")
_LAST_LINE = re.compile(rf"\s*\n\s*({_ALPHABET}++)(=*+)(?=\s*(?:\n|\Z)|[^\sA-Za-z0-9])")
_OPEN_LINE = re.compile(rf"(?<!{_ALPHABET}){_ALPHABET}{{{MIN_OPEN_LINE},}}+\Z")
_OPEN_END = re.compile(rf"\s*{_ALPHABET}*\Z")
_PADDING = re.compile(r"={0,6}")
_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}|[0-9]{4,}")
_PLAIN_WORD = re.compile(r"[A-Za-z][a-z]*|[0-9]+|-{5}.*")
_LIST_ITEM = re.compile(r"[A-Za-z]{2,12}[0-9]{0,4}[-_/]")
_LOWER, _NO_LETTER = re.compile("[a-z]"), re.compile(r"[0-9+/_-]")
_ID_LENGTHS = {40, 43, 44, 86}  # lengths of API keys, digests of 32 and 64 bytes, and base58 addresses
_CUT_ESCAPE = re.compile(r"(?:\\\\?(?:u0{0,2}2?)?|%[023]?)\Z")
# Escaped alphabet, padding and line breaks -> plain text of the same length, so that positions stay valid.
_ESCAPES = {
    "\\": {r"\u002b": "++++++", r"\u002B": "++++++", r"\u002f": "//////", r"\u002F": "//////", r"\/": "//"}
    | {rf"\{char}": "\n\n\n" for char in (r"\n", r"\r", r"\t")}
    | {rf"\{char}": "\n\n" for char in "nrt"},
    "%2": {"%2B": "+++", "%2b": "+++", "%2F": "///", "%2f": "///"},
    "%3": {"%3D": "===", "%3d": "==="},
    "%0": {"%0A": "\n\n\n", "%0a": "\n\n\n", "%0D": "\n\n\n", "%0d": "\n\n\n"},
}


def find_base64_runs(text: str) -> list[Span]:
    """Return the span of each run over LIMIT characters, including line breaks, escapes and padding."""
    if len(text) <= LIMIT:
        return []
    plain = _unescape(text)
    runs = [_to_run(plain, lines) for lines in _groups(plain) if _is_group(plain, lines)]
    return [(start, end) for start, end in runs if end - start > LIMIT]


def holds_base64(text: str) -> bool:
    """Return whether the text has a run of more than LIMIT characters."""
    return bool(find_base64_runs(text))


def open_run_start(text: str) -> int:
    """Return the start of the run, of any length, at the end of the text; without one, the text's length."""
    plain = _unescape(text)
    plain = plain[:-6] + _CUT_ESCAPE.sub("", plain[-6:])
    lines: list[re.Match[str]] = []
    for lines in _groups(plain):  # noqa: B007 - only the last group may be open
        pass
    if lines and _OPEN_END.match(plain, lines[-1].end()):
        return lines[0].start()
    last = _OPEN_LINE.search(plain, max(0, len(plain) - MIN_LINE))
    return last.start() if last and _is_line(plain, last) else len(text)


def _unescape(text: str) -> str:
    for sign, rows in _ESCAPES.items():
        if sign in text:
            for escape, plain in rows.items():
                text = text.replace(escape, plain)
    return text


def _groups(plain: str) -> Iterator[list[re.Match[str]]]:
    """Yield groups of lines that look like Base64 and have only white space between them."""
    lines: list[re.Match[str]] = []
    for line in _find_lines(plain):
        if not _is_line(plain, line):
            continue
        if lines and not plain[lines[-1].end() : line.start()].isspace():
            yield lines
            lines = []
        lines.append(line)
    if lines:
        yield lines


def _find_lines(plain: str) -> Iterator[re.Match[str]]:
    start = 0
    while start < len(plain):
        rest = _REST_OF_LINE.match(plain, start + _WINDOW)
        end = rest.end() if rest else len(plain)
        yield from _LINE.finditer(plain, start, end)
        start = end


def _to_run(plain: str, lines: list[re.Match[str]]) -> Span:
    """Return the span of a run, including its shorter last line and its padding."""
    end = lines[-1].end()
    last = _LAST_LINE.match(plain, end)
    if last and (last[2] or not _PLAIN_WORD.fullmatch(last[1])):
        end = last.end(1)
    padding = _PADDING.match(plain, end)
    return lines[0].start(), padding.end() if padding else end


def _is_line(plain: str, token: re.Match[str]) -> bool:
    """Return whether a token looks like Base64: it mixes upper and lower case, or encodes uniform bytes."""
    text = token[0][:_SAMPLE]
    if plain.endswith("base64,", 0, token.start()):
        return True
    zeros = text.count("A") + text.count("/")  # characters that encode the bytes 0 and 255
    if (text[4:-4] == text[:-8] or zeros * 2 >= len(text)) and re.search("[A-Z/]", text):
        return True
    text = re.sub("^0x|[-+/_]", "", text)
    if text.lower() == text or text.upper() == text:
        return False
    words = sum(len(word[0]) for word in _WORD.finditer(text))
    return words < MAX_WORD_SHARE * len(text) or zeros * 4 >= len(text)


def _is_group(plain: str, lines: list[re.Match[str]]) -> bool:
    """Return whether lines that look like Base64 are Base64 together, and no list and no letters only.

    Over LIMIT characters of Base64 without lower case, or without any digit or sign, occur only where it
    encodes uniform bytes. Text of letters alone is a sequence of DNA or of a protein, or a made-up word.
    """
    texts = [line[0] for line in lines]
    if _is_list(texts):
        return False
    text = "".join(texts)[:_SAMPLE]
    if plain.endswith("base64,", 0, lines[0].start()) or (_LOWER.search(text) and _NO_LETTER.search(text)):
        return True
    zeros = text.count("A") + text.count("/")
    return text[4:-4] == text[:-8] or zeros >= MIN_ZERO_SHARE * len(text)


def _is_list(lines: list[str]) -> bool:
    """Return whether the lines are a list of identifiers, by their prefixes (`sha384-`) or lengths."""
    if len(lines) < 4 or len(set(lines)) * 2 < len(lines):
        return False
    heads = sum(1 for line in lines if _LIST_ITEM.match(line))
    return (
        heads * 4 >= len(lines) * 3
        or len({line[:4] for line in lines}) == 1
        or {len(line) for line in lines} <= _ID_LENGTHS
    )
