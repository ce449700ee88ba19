"""The sizing calculator: data x operation -> memory -> pool -> nodes."""
