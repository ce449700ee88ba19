"""Former name of the program that running clusters of version 0.1.0 start on more hosts."""

from hyperplane.clusters.dask.ssh.process import main

if __name__ == "__main__":
    main()
