"""Explain what a verb would run, and look for what is wrong on a node."""
