"""The command ``adescent`` (extra ``cli``).

Exit codes: 0 done, 1 a run ended with an error or what it found could not be written, 2 the command was used wrongly
(also: a file, a directory or an extra that it needs is missing or not as it must be), 130 cancelled, 141 nobody reads
the output any more. The last two are what a shell says of programs that end by SIGINT and SIGPIPE.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from adescent.cli.exits import CANCELLED, CLOSED_PIPE, FAILED, USAGE
from adescent.cli.streams import complain, open_streams, release_streams

__all__ = ["main"]

NEEDED = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line (``sys.argv`` without the program, unless given) says, and return the exit code."""
    if not open_streams():
        complain("standard output is closed, and there is nowhere to write what is found: redirect it to a file.")
        return FAILED
    code = _written(sys.argv[1:] if arguments is None else list(arguments))
    release_streams()
    return code


def _written(arguments: list[str]) -> int:
    """The exit code of an answer that has left the process, or of what kept it from leaving."""
    try:
        code = _answer(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        complain("cancelled")
        return CANCELLED
    except BrokenPipeError:
        return CLOSED_PIPE
    except OSError as error:
        complain(f"{error.filename or 'standard output'} cannot be written: {error.strerror or error}.")
        return FAILED
    return code


def _answer(arguments: list[str]) -> int:
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        needed = " and ".join(missing)
        complain(f"the command needs {needed}: pip install 'adescent[cli]', or in a clone pip install -e '.[cli]'")
        return USAGE
    from adescent.cli.app import answer

    return answer(arguments)
