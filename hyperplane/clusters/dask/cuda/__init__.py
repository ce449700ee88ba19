"""The cuda engine: worker processes on the GPUs of this machine."""
