"""Hostile candidates: what they try (in workers), what they are aimed at, and how it is told whether it worked."""
