"""Online prediction: a server of saved models over HTTP."""
