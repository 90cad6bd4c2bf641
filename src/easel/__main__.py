"""The entry point of the `easel` command; Ctrl-C during the imports exits without a traceback."""

import signal
import sys


def main() -> None:
    """Import the command line, then run it."""
    # If the handler is not the default one, the parent ignores SIGINT on purpose (`nohup`, a shell's `&`).
    handles_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from easel.cli.app import main as run_command  # noqa: PLC0415 - this import takes long

    try:
        if handles_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run_command()
    except KeyboardInterrupt:
        sys.exit(130)  # a shell's exit code for SIGINT


if __name__ == "__main__":
    main()
