"""What the fake plugins are made of: the protocol, the knobs, the state on disk, the shapes of results.

Standard library only, no import of libcni, Python 3.8 syntax: a fake plugin runs under any runtime.
"""
