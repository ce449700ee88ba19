"""Amazon States Language machines: read, checked and run on this machine, with no cloud."""
