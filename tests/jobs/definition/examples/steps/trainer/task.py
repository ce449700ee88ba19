"""A training program."""
