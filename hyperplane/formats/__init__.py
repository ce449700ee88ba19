"""File formats: how each one is read, split and written."""
