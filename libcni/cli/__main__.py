"""The command line as a module: ``python -m libcni.cli``."""

from libcni.cli import run

run()
