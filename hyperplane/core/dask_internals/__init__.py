"""Private names of Dask and distributed: no other module of this package imports any.

A release of Dask may move or remove a private name. ``pyproject.toml`` therefore has upper bounds
for dask and distributed, and a new release needs changes here only. ``make oldest`` and ``make
test`` check every name with the oldest and the newest supported release.

The modules are separate because importing ``clients`` loads distributed, and ``frames`` pandas.
"""
