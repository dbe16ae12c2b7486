"""How the command ends, in the one number that a shell gets to see."""

from __future__ import annotations

__all__ = ["CANCELLED", "CLOSED_PIPE", "FAILED", "OK", "USAGE"]

OK, FAILED, USAGE = 0, 1, 2
CANCELLED = 130
"""What a shell reports of a program that SIGINT ended: 128 and the number of the signal."""
CLOSED_PIPE = 141
"""Nobody reads the output any more: the same for SIGPIPE."""
