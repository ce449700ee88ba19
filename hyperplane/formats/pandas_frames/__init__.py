"""Conversion between pandas, Polars and Arrow."""
