"""The engine of this machine's GPUs."""
