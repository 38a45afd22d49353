"""The modules of the fake plugins: the language of steps, the protocol, the kinds, their state, forms of results.

Standard library only, no import of libcni, Python 3.8 syntax: a fake plugin runs under any runtime.
"""
