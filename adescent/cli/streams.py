"""Standard streams, any of which may be closed, full, of another encoding, or read by nobody any more."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

__all__ = ["complain", "open_streams", "release_streams"]


def open_streams() -> bool:
    """Make stdout and stderr fit to be written to, whatever is written. False where there is no stdout to write to."""
    if sys.stderr is None:  # closed by whoever started the process, as by `2>&-`; this one lasts as long as that does
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr has it: no letter is worth a failure
    return sys.stdout is not None


def complain(message: str) -> None:
    """Tell it to stderr, in the command's name; nothing is left to do where that cannot be written either."""
    with suppress(OSError):
        sys.stderr.write(f"adescent: {message}\n")
        sys.stderr.flush()


def release_streams() -> None:
    """Let go of what could not be written: the interpreter would try again at its exit, and report that as a bug."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _point_nowhere(stream)


def _point_nowhere(stream: TextIO) -> None:
    with suppress(OSError):  # also raised by a stream without a descriptor, which the interpreter leaves alone
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
