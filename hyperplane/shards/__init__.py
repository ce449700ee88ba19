"""Sharded work: the index of this shard, its share of files or rows, and its output path."""
