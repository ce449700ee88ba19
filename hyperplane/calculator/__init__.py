"""The sizing calculator: how much data, which pool, how many nodes."""
