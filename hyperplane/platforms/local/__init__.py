"""The local machine: cores, memory, GPUs, processes, locks and private folders."""
