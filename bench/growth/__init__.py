"""Parts of the measurement `growth`: the sizes, filled databases, sample calls, and the server's lock waits."""
