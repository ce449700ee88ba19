"""Sizing calculator: from data and an operation to memory, pool and number of nodes."""
