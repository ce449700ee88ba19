"""The slurm engine: nodes as jobs of Slurm."""
