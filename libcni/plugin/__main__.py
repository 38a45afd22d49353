"""The command line of ``python -m libcni.plugin``."""

from __future__ import annotations

import sys

from libcni.plugin.build import main

if __name__ == "__main__":
    sys.exit(main())
