"""Division of work into shards: the current shard, its files, its rows and its output path."""
