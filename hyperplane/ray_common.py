"""The documented module of Ray clusters, which this package does not provide yet."""

from hyperplane.errors import UnsupportedModule

raise UnsupportedModule(
    "hyperplane.ray_common",
    "provided are Dask clusters: hyperplane.notebook_common.initialize_cluster takes nodes, cores "
    "and memory as initialize_ray_cluster does, and quickstart_dask the same sizes as "
    "quickstart_ray",
)
