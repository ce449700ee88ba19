"""Readers of Parquet, CSV, JSON lines and Avro: plans, partitions and column types."""
