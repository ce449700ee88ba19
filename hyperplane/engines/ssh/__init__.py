"""The engine of hosts that ssh reaches."""
