"""Parts of the runners for Google Cloud."""
