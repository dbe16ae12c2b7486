"""Where a rollout runs."""
