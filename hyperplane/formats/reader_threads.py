"""The number of threads that read the metadata of files."""

#: Number of threads that read footers, headers or samples.
READER_THREADS = 16
