"""The ssh engine: worker processes on a list of hosts."""
