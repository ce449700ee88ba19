"""The engine of this machine."""
