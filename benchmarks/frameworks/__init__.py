"""The same jobs with the frameworks that this project starts, and with libraries of one process."""
