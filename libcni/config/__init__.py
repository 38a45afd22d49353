"""A network configuration: read, checked, and kept as the text that it is."""
