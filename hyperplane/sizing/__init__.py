"""Arithmetic of sizes: memory of an operation, pools, nodes and layouts of workers."""
