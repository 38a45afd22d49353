"""Fuzz what takes bytes from others: ``python -m reliability.fuzz [--cases N] [--seed N] [TARGET ...]``.

With atheris it is guided by coverage; without, inputs near to good ones are made at random.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

__all__ = ["main"]

_MEMORY = 2 << 30
_SECONDS = 10


def main(argv: list[str] | None = None) -> int:
    """Fuzz each target; return 0 if nothing was found."""
    from reliability.hostile import TARGETS

    parser = argparse.ArgumentParser(description="Fuzz what takes bytes from others.")
    parser.add_argument("target", nargs="*", default=list(TARGETS), help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--cases", type=int, default=100_000, help="cases for each target")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 1 << 31))
    parser.add_argument("--plain", action="store_true", help="without atheris, even if it is there")
    options = parser.parse_args(argv)
    guided = not options.plain and find_spec("atheris") is not None
    sys.stdout.write(f"fuzz: {'guided by coverage (atheris)' if guided else 'at random'}, --seed {options.seed}\n")
    failed = []
    for name in options.target:
        started = time.monotonic()
        status = _guided(name, options.cases, options.seed) if guided else _plain(name, options.cases, options.seed)
        verdict = "nothing found" if status == 0 else "FAILED"
        sys.stdout.write(f"fuzz: {name}: {options.cases} cases in {time.monotonic() - started:.0f} s: {verdict}\n")
        sys.stdout.flush()
        failed += [name] if status else []
    return 1 if failed else 0


def _plain(name: str, cases: int, seed: int) -> int:
    from reliability.hostile import TARGETS, mutations

    for data in mutations(name, seed, cases):
        try:
            TARGETS[name](data)
        except BaseException:
            sys.stdout.write(f"fuzz: {name}: {data!r}\n")
            raise
    return 0


def _guided(name: str, cases: int, seed: int) -> int:
    """Run libFuzzer in a process of its own: it ends the process that it runs in."""
    from reliability.hostile import SEEDS, TOKENS

    with tempfile.TemporaryDirectory() as directory:
        corpus = Path(directory, "corpus")
        corpus.mkdir()
        for number, data in enumerate(SEEDS[name]):
            (corpus / f"seed{number}").write_bytes(data)
        words = Path(directory, "words")
        words.write_text("".join(_word(token) for token in TOKENS if len(token) < 60))
        command = [
            sys.executable, "-m", "reliability.fuzz_guided", name, str(corpus), f"-runs={cases}", f"-seed={seed}",
            f"-dict={words}", "-max_len=4096", f"-timeout={_SECONDS}", f"-rss_limit_mb={_MEMORY >> 20}", "-verbosity=0",
            f"-artifact_prefix={os.environ.get('TMPDIR', '/tmp')}/libcni-fuzz-{name}-",
        ]  # fmt: skip
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def _word(token: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in token) + '"\n'


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    raise SystemExit(main())
