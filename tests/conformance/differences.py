"""Write testdata/evidence/differences.md: ``make conformance-go``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from conformance.golang import INSTALLED, NEWEST, Reasons, build, explain, faults, run_vectors
from conformance.table import render
from conformance.vectors import TESTDATA, load_vectors

PAGE = TESTDATA / "evidence" / "differences.md"


def generate(programs: Mapping[str, Path], directory: Path) -> tuple[dict[str, Reasons], str]:
    """Execute all vectors with each version of Go libcni; return what came of it, and the page."""
    vectors = load_vectors()
    each = {
        version: explain(run_vectors(program, vectors, directory / version)) for version, program in programs.items()
    }
    page = render(each, len(vectors))
    return each, page.encode(errors="backslashreplace").decode()


def main() -> int:
    """Write the page; return 1 where a difference has no reason, or a reason no difference."""
    try:
        programs = {INSTALLED: build(INSTALLED), NEWEST: build(NEWEST, "go")}
    except pytest.skip.Exception as skipped:
        sys.stderr.write(f"{skipped}\n")
        return 77
    with tempfile.TemporaryDirectory() as directory:
        each, page = generate(programs, Path(directory))
    found = faults(each)
    for fault in found:
        sys.stderr.write(f"{fault}\n".encode(errors="backslashreplace").decode())
    PAGE.write_text(page, encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
