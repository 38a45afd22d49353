"""The command line: what a person sees, what a script reads, and how it ends."""
