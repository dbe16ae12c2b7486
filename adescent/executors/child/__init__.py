"""The worker process, from its start to its end. It is run by the name of this package, and not imported."""
