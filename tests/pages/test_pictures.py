"""The pictures of the pages are what their texts say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_pictures_are_as_their_texts_say() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/pictures.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), "call make frozen"
