"""What to try next, and what the oracle is asked next."""
