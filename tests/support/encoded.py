"""Scripts that say long Base64.

In a message, Base64 over 2 KB is replaced by a reference (RS-62), so that a script must say it in pieces.
"""

from typing import Any

PIECE = 2_000


def say_in_pieces(text: str) -> list[dict[str, Any]]:
    """Return steps that say the text in pieces, none of which is taken out of the message."""
    return [{"say": text[at : at + PIECE]} for at in range(0, len(text), PIECE)]
