"""Private names of Dask and distributed: no other package of hyperplane imports any.

There are several modules because ``import hyperplane`` loads neither pandas nor distributed:
``tasks`` and ``workarounds`` load only Dask, ``frames`` also pandas, the others also distributed.

A release of Dask may move or remove a private name. ``pyproject.toml`` therefore has upper bounds
for dask and distributed. ``make oldest`` and ``make test`` check every name with the oldest and the
newest supported release. A new release may also change private methods, which subclasses in
``clusters.dask`` and ``collections.frames.explain`` override, and private attributes that
``guard.forks`` sets.
"""
