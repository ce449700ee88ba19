"""Conversion of Polars and Arrow data to pandas."""
