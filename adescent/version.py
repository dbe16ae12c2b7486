"""Which release this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("adescent")
except PackageNotFoundError:  # a source tree on the path, never installed
    __version__ = "0+source"
