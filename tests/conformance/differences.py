"""Write testdata/evidence/differences.md: ``make conformance-go``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from conformance.golang import ROOT, Reasons, build, explain, run_vectors
from conformance.table import render
from conformance.vectors import TESTDATA, load_vectors

PAGE = TESTDATA / "evidence" / "differences.md"


def generate(program: Path, directory: Path) -> tuple[Reasons, str]:
    """Execute all vectors with Go libcni; return what came of it, and the page."""
    vectors = load_vectors()
    reasons = explain(run_vectors(program, vectors, directory))
    page = render(reasons, len(vectors))
    return reasons, page.encode(errors="backslashreplace").decode()


def main() -> int:
    """Write the page; return 1 where a difference has no reason, or a reason no difference."""
    with tempfile.TemporaryDirectory() as directory:
        reasons, page = generate(build(ROOT / "build" / "go_libcni"), Path(directory))
    for fault in reasons.faults:
        sys.stderr.write(f"{fault}\n".encode(errors="backslashreplace").decode())
    PAGE.write_text(page, encoding="utf-8")
    return 1 if reasons.faults else 0


if __name__ == "__main__":
    sys.exit(main())
