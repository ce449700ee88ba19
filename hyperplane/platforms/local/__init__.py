"""The local machine: cores, memory, processes, locks and private folders."""
