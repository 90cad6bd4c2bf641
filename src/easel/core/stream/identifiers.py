"""Whether many short tokens are identifiers, each a whole by itself, or the pieces of one Base64 text.

Both are letters and digits without an order. What tells them apart:

- **A head of their own.** Identifiers say what they are (`cus_…`, `sha384-…`), or all begin alike since they were made at one time
  or of one kind. Pieces of one text do not.
- **An end of their own.** The last character of 16 or 32 bytes in Base64 has bits to spare, and they are zero. A piece that was
  cut off has them at random.
- **Use.** Identifiers are referred to: the same ones come again. Pieces of random bytes never do.
- **Their alphabet.** Identifiers have to fit into addresses and names, so they have no `+` and no `/`, and most have no sign at
  all; in Base64 of random bytes one character of 32 is a sign.
- **Their length.** All are as long as each other, and not whole groups of four, as 21 characters of a nanoid. Whoever wraps a text
  makes lines of whole groups, or leaves a shorter last one.

What cannot be told apart (say, hundreds of random tokens of 16 characters with signs) is taken for pieces: moving a list loses
nothing, and Base64 that stays breaks the law. The other way round, base64url that was cut into equal pieces of a length as
above, up to 24, passes for identifiers.
"""

import re
from collections import Counter
from collections.abc import Sequence, Set

_FEWEST = 8  # of which anything can be said
_LONGEST = 100  # a digest of 64 bytes in Base64, with its name
_MAX_ODD_LENGTH = 24  # of those that only their length tells from pieces
_MAX_LENGTHS = 3  # of identifiers side by side, as in a table with some columns of them
_SAMPLE = 8_192  # characters that tell how frequent each is
_TYPED = re.compile(rb"[A-Za-z]{2,12}[0-9]{0,4}[-_:](?=[A-Za-z0-9])")
_SPARE_BITS = {2: b"AQgw", 3: b"AEIMQUYcgkosw048"}
# How PNG, JPEG, GIF, WebP, SVG, gzip, ZIP, PDF, keys, certificates and JSON begin: here a whole begins.
HEAD = re.compile(
    rb"iVBORw0KGgo|/9j/|_9j_|R0lGOD|UklGR|PHN2Zy|PD94bW|H4sI|UEsDB|JVBERi|AAAA[BCE]3Nz|MII[A-Z]|eyJ[A-Za-z]"
)


def are_identifiers(tokens: Sequence[bytes]) -> bool:
    """Of the tokens in their order, without words."""
    if len(tokens) < _FEWEST or sum(len(token) > _LONGEST for token in tokens) * 10 > len(tokens):
        return False
    if _have_heads(tokens) or _are_few(set(tokens), len(tokens)):
        return True
    if HEAD.match(tokens[0]) and sum(1 for token in tokens if HEAD.match(token)) == 1:
        return False  # a picture, and the rest of it
    lengths = Counter(map(len, tokens))
    common = [length for length, times in lengths.most_common(_MAX_LENGTHS) if times * 20 >= len(tokens)]
    if sum(lengths[length] for length in common) * 10 < len(tokens) * 9:
        return False
    has_rest = len(common) == 1 and len(tokens[-1]) < common[0] and lengths[common[0]] == len(tokens) - 1
    return all(
        _is_class([token for token in tokens if len(token) == length], length, has_rest=has_rest)
        for length in common
    )


def _are_few(tokens: Set[bytes], times: int) -> bool:
    """Ever the same, as versions in a table are, and unlike Base64 of ever the same bytes made of more than some letters."""
    return len(tokens) * 20 <= times and max(map(len, tokens)) <= 16 and len(set(b"".join(tokens))) > 8


def _have_heads(tokens: Sequence[bytes]) -> bool:
    if sum(1 for token in tokens if _TYPED.match(token)) * 4 >= len(tokens) * 3:
        return True
    begin, times = Counter(token[:3] for token in tokens).most_common(1)[0]
    return times * 10 >= len(tokens) * 9 and len(set(begin)) > 1 and len(set(tokens)) * 2 > len(tokens)


def _is_class(tokens: Sequence[bytes], length: int, *, has_rest: bool) -> bool:
    """Whether tokens of one length are identifiers by their ends, by their use, by their alphabet or by their length."""
    if sum(map(ends_whole, tokens)) * 33 >= len(tokens) * 32 and len(set(tokens)) * 2 > len(tokens):
        return True
    joined = b"".join(set(tokens))
    if b"+" in joined or b"/" in joined or not is_even(joined):
        return False
    if length >= 6 and len(set(tokens)) * 4 < len(tokens) * 3:
        return True
    if b"-" not in joined and b"_" not in joined:
        return len(joined) >= 300  # of so many characters in Base64 some are signs
    return length % 4 != 0 and length <= _MAX_ODD_LENGTH and not has_rest


def ends_whole(token: bytes, padding: int | None = None) -> bool:
    """Whether the bits that its last character has to spare are zero, and its padding, if there is any, is the right one."""
    spare = _SPARE_BITS.get(len(token) % 4)
    return spare is not None and token[-1] in spare and (padding is None or (len(token) + padding) % 4 == 0)


def is_even(joined: bytes) -> bool:
    """Whether all letters and digits are about equally frequent, as in random bytes and in no others."""
    counts = Counter(joined[:_SAMPLE])
    expected = counts.total() / 64
    return len(counts) >= 48 and max(counts.values()) <= expected + 6 * expected**0.5
