"""Run the command line with ``python -m libcni``."""

from libcni.cli import run

run()
