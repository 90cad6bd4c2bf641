"""Parts of the measurement `growth`: sizes, filled databases, sample calls, and lock waits of the server."""
