"""The engine ``spark:ssh``: a master of Spark on this machine, and workers on other hosts."""
