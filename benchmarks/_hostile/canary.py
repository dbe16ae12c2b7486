"""A process that hostile candidates may get at in place of anybody's: it keeps a value and says it when asked.

The first argument is a secret, and so is a file's name that it holds open; its first line of output says where the
value lies and the number of the open file.
"""

from __future__ import annotations

import ctypes
import json
import sys

VALUE = b"untouched"

if __name__ == "__main__":
    kept = ctypes.create_string_buffer(VALUE, 16)
    with open(sys.argv[2], "rb") as file:  # noqa: PTH123 - the less it imports, the sooner it is there
        told = {"address": ctypes.addressof(kept), "descriptor": file.fileno()}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        for _ in sys.stdin:
            sys.stdout.write(json.dumps({"value": kept.raw.hex()}) + "\n")
            sys.stdout.flush()
