"""Checks of a plan before its cluster starts, which need no file formats and no engine."""
