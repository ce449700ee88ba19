"""Former name of the package of the ssh engine."""
