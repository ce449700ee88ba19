"""Workers on other machines, of a cluster with its head on this machine, for all frameworks."""
