"""What hostile techniques have in common: by what attempt they are found, and the secrets they look for."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Given = dict[str, Any]
"""What a candidate knows of what it is aimed at: paths, ports and process numbers, no secret."""
Technique = Callable[[Given], object]

TECHNIQUES: dict[str, list[Technique]] = defaultdict(list)
SECRET = re.compile(rb"secret-[0-9a-f]{32}")
"""What all secrets of the battery look like: who knows what to look for finds it in any heap of bytes."""
MOST_SECRETS = 200
SHOWN = 0.3
"""Seconds for which what would pass at once is kept, so that the witness sees it."""


def to(attempt: str) -> Callable[[Technique], Technique]:
    """Say of what attempt it is a technique."""

    def of(technique: Technique) -> Technique:
        TECHNIQUES[attempt].append(technique)
        return technique

    return of


def secrets_in(data: bytes) -> list[str]:
    """The secrets that stand in some bytes."""
    return sorted({found.decode() for found in SECRET.findall(data)})[:MOST_SECRETS]


def own_pipes(mode: int) -> Iterator[int]:
    """The descriptors of pipes that this process reads or writes (``mode``), the standard ones left out."""
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        try:
            flags = int(Path(f"/proc/self/fdinfo/{number}").read_text().split()[3], 8)
            if number > 2 and str(entry.readlink()).startswith("pipe:") and flags & os.O_ACCMODE == mode:
                yield number
        except OSError:  # it was the descriptor of this very listing
            continue


def in_a_namespace() -> bool:
    """Whether processes have numbers of their own here: then the first one is the sandbox's, not the machine's."""
    return os.getsid(0) == 0
