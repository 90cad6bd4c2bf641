"""How fast a stream of small pieces becomes events: often enough to feel live, seldom enough to stay cheap."""

DELTA_BYTES = 1_500  # with its ids a delta stays under the 2 KB that an event may have (RS-35)
DELTA_SECONDS = 0.05  # nobody reads faster

# What takes more in JSON than in plain text: a piece is measured as it will be stored.
_ESCAPED = {chr(code): 6 for code in range(32)} | dict.fromkeys('"\\\b\f\n\r\t', 2)


def pieces(text: str, most: int = DELTA_BYTES) -> list[str]:
    """The text in order, cut between characters, each piece at most `most` bytes as JSON writes it."""
    if len(text) * 6 <= most:
        return [text] if text else []
    found: list[str] = []
    start = size = 0
    for index, char in enumerate(text):
        width = _ESCAPED.get(char) or len(char.encode("utf-8", "surrogatepass"))
        if size + width > most:
            found.append(text[start:index])
            start, size = index, 0
        size += width
    found.append(text[start:])
    return found


def shortened(reason: str, most: int = 1_000) -> str:
    """Why a run failed, in so many characters: its beginning and its end, for a person to read and every table to hold."""
    if len(reason) <= most:
        return reason
    left_out = len(reason) - most
    return f"{reason[: most * 2 // 3]} … {left_out} characters left out … {reason[-most // 3 :]}"
