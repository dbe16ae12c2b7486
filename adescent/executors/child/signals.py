"""How signals reach a worker process: as they reach any program, whatever its parent has made of its own."""

from __future__ import annotations

import signal

__all__ = ["usual_signals"]

OF_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Ignored by the interpreter itself, which raises an OSError instead."""


def usual_signals() -> None:
    """Ignore and block none that the parent happens to ignore or block: both are inherited.

    Where SIGCHLD is ignored, a program that has failed looks like one that has not; where SIGXCPU is, there is no limit
    of processor time. Ctrl-C is another matter: it reaches the whole group of a terminal, and the parent decides.
    """
    for number in signal.valid_signals():
        if number not in OF_PYTHON and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
