"""Resolve paths, globs, folders, and URLs to files on local disk or any fsspec store."""
