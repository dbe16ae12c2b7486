"""What a candidate is worth: the evaluation group that measures, its cache, and the three layers of a verdict."""
