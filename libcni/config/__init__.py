"""Network configurations: how they are found, read, checked, and kept as text."""
