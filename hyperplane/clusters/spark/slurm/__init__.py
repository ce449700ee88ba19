"""The engine ``spark:slurm``: a master of Spark on this machine, and workers as jobs of Slurm."""
