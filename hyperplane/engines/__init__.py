"""The engines: each starts a finished plan, and only engines touch the world."""
