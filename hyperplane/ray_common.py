"""Documented module of Ray clusters that this package does not provide."""

from hyperplane.core.errors import UnsupportedModule

raise UnsupportedModule(
    "hyperplane.ray_common",
    "use a Dask cluster: hyperplane.notebook_common.initialize_cluster takes nodes, cores and "
    "memory as initialize_ray_cluster does, and quickstart_dask the same sizes as quickstart_ray",
)
