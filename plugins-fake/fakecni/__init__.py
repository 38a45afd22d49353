"""The modules of the fake plugins: protocol, faults, state on disk, and forms of results.

Standard library only, no import of libcni, Python 3.8 syntax: a fake plugin runs under any runtime.
"""
