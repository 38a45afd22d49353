"""Network configurations: find, read and check them, and keep them as text."""
