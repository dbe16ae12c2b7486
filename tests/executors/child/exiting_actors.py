"""A script without a guard: it exits when it is imported."""

raise SystemExit(4)
