"""``python -m adescent`` is the command ``adescent``."""

from __future__ import annotations

import sys

from adescent.cli import main

if __name__ == "__main__":
    sys.exit(main())
