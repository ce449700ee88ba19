"""Helpers that take and return Dask collections: bags, dataframes and arrays.

Each public function is in the module of its name; ``value_counts`` is in ``group_agg`` and
``bad_records`` in ``read_records``.
"""
