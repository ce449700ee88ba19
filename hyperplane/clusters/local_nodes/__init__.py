"""Clusters of any framework whose nodes run on this machine, as children of one program."""
