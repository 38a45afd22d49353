"""Run one target under atheris; ``reliability.fuzz`` starts this. The first argument is the target's name."""

from __future__ import annotations

import logging
import sys

import atheris

with atheris.instrument_imports(include=["libcni", "json"], enable_loader_override=False):
    from reliability.hostile import TARGETS

if __name__ == "__main__":
    logging.disable()
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, lambda data: target(data) and None)
    atheris.Fuzz()
