"""Explain the plugin calls of a verb, and find the problems of a node."""
