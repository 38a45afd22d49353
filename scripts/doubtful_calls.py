"""Show that mypy and pyright refuse every doubtful call of testdata/types/doubtful_calls.py, and no other line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CALLS = ROOT / "testdata" / "types" / "doubtful_calls.py"
CHECKERS = {
    "mypy": ["mypy", "--strict", "--no-error-summary", "--no-pretty", str(CALLS)],
    "pyright": ["pyright", str(CALLS)],
}


def main() -> int:
    lines = CALLS.read_text(encoding="utf-8").splitlines()
    doubtful = {number for number, line in enumerate(lines, 1) if "  # doubtful: " in line}
    is_wrong = False
    for checker, command in CHECKERS.items():
        refused = _refused(command)
        for number in sorted(doubtful ^ refused):
            is_wrong = True
            print(
                f"{checker} {'accepts' if number in doubtful else 'refuses'} {CALLS.name}:{number}: {lines[number - 1]}"
            )
    if not is_wrong:
        print(f"both type checkers refuse the {len(doubtful)} doubtful calls")
    return 1 if is_wrong else 0


def _refused(command: list[str]) -> set[int]:
    """Return the numbers of the lines for which a type checker prints an error."""
    binaries = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    checked = subprocess.run(  # noqa: S603 - the project's own tools
        [str(binaries / command[0]), *command[1:]], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    # mypy: FILE:LINE: error: ...; pyright: FILE:LINE:COLUMN - error: ...
    return {int(line) for line in re.findall(rf"{CALLS.name}:(\d+)(?::\d+)?(?::| -) error:", checked.stdout)}


if __name__ == "__main__":
    sys.exit(main())
