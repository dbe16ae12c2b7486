"""One engine, two schedules: worker, dispatch, rounds, stream, and how a run ends."""
