"""Sorts, joins, distinct rows, groups and top rows of more data than the workers' memory."""
