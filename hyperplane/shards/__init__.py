"""Sharded work: which share of it is ours, and reading and naming that share only."""
