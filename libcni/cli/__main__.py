"""Run the command line with ``python -m libcni.cli``."""

from libcni.cli import run

run()
