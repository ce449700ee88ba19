"""Shards of any object on the workers of a cluster, in the style of Orca."""
