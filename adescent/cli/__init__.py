"""The command ``adescent`` (extra ``cli``).

Exit codes: 0 done, 1 a run ended with an error, 2 the command was used wrongly (also: a file, a directory or an extra
that it needs is missing or not as it must be), 130 cancelled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

__all__ = ["main"]

NEEDED = ("cyclopts", "rich")
USAGE, CANCELLED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line (``sys.argv`` without the program, unless given) says, and return the exit code."""
    try:
        return _answer(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        sys.stderr.write("adescent: cancelled\n")
        return CANCELLED


def _answer(arguments: list[str]) -> int:
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        sys.stderr.write(f"adescent: the command needs {' and '.join(missing)}: pip install 'adescent[cli]'\n")
        return USAGE
    from adescent.cli.app import answer

    return answer(arguments)
