"""Public functions of the sizing calculator: measure data, recommend a cluster, plot it.

The rules and their arithmetic are in :mod:`hyperplane.sizing`.
"""
