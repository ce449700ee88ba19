"""Helpers for bags, dataframes and arrays: collection in, collection out."""
