"""Files that run a job without a supervisor: Slurm, Kubernetes, Amazon States Language."""
