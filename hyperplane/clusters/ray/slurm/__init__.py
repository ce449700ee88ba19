"""The engine ``ray:slurm``: a head of Ray on this machine, and worker nodes as jobs of Slurm."""
