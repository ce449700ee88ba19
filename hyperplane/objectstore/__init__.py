"""Files on local disks and in object stores, through fsspec."""
