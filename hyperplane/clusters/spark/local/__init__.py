"""The engine ``spark:local``: a master and workers of Spark on this machine."""
