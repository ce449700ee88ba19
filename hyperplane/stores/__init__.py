"""From what a caller names to files, on this machine's disk or any other store."""
