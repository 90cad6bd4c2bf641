"""`python -m bench [--quick] [NAME …]`: take the named measurements, or all but the long ones, and print one
table. Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import sys
import time
from typing import TYPE_CHECKING

import uvloop

from bench.figures import Figure, table, unmeasured
from bench.measurements import LONG_MEASUREMENTS, MEASUREMENTS
from bench.setting import Setting, prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMED = {**MEASUREMENTS, **LONG_MEASUREMENTS}


def main(arguments: Sequence[str]) -> int:
    asked = _parse(arguments)
    began = time.monotonic()
    with prepared(quick=asked.quick) as setting:
        figures = uvloop.run(_take(setting, asked.names or list(MEASUREMENTS)))
    print(
        f"\n{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}",
        end="",
    )
    print(f"{', quick sizes' if asked.quick else ''}; {time.monotonic() - began:.0f} s\n")
    print(table(figures))
    missed = sum(figure.held is False for figure in figures)
    print(
        f"\n{missed} of {sum(figure.held is not None for figure in figures)} bars missed"
        if missed
        else "\nevery bar held"
    )
    return 1 if missed else 0


async def _take(setting: Setting, names: Sequence[str]) -> list[Figure]:
    _end_in_order()
    figures: list[Figure] = []
    for name in names:
        print(f"{name}: {NAMED[name].__doc__}", file=sys.stderr, flush=True)
        try:
            figures += await NAMED[name](setting)
        except Exception as problem:  # noqa: BLE001 - reported in its row
            print(f"  {type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            figures.append(unmeasured(name, f"{type(problem).__name__}: {problem}".splitlines()[0][:100]))
    return figures


def _end_in_order() -> None:
    """Handle SIGTERM like Ctrl-C: end every child process first."""
    main_task = asyncio.current_task()
    assert main_task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main_task.cancel)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    names = "\n".join(f"  {name:<12}{measure.__doc__}" for name, measure in NAMED.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Ratios against floors and peers, all measured in one run.",
        epilog=f"measurements:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        choices=[[], *NAMED],
        help=f"which to take; none: all but {', '.join(LONG_MEASUREMENTS)}",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes: to see that all of it runs, not to read the figures",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
