"""The log of calls: a line ``<verb> <plugin> <number>`` in ``.calls``, and two files for each number.

``.<plugin>/calls/<number>.stdin`` has the bytes of stdin, ``.<plugin>/calls/<number>.env`` the variables, with a NUL
after each. ``libcni.testing.FakePlugins`` reads and writes the same files.
"""

from __future__ import annotations

import os


def record(directory: str, name: str, verb: str, stdin: bytes) -> None:
    """Add a call of the plugin ``name`` to the log in ``directory``."""
    calls = os.path.join(directory, f".{name}", "calls")
    os.makedirs(calls, exist_ok=True)
    number = os.getpid()
    while True:
        try:
            # "x": in another PID namespace a process may have the same number.
            with open(os.path.join(calls, f"{number}.stdin"), "xb") as file:
                file.write(stdin)
            break
        except FileExistsError:
            number += 1
    with open(os.path.join(calls, f"{number}.env"), "wb") as file:
        file.write(b"".join(name + b"=" + value + b"\0" for name, value in os.environb.items()))
    with open(os.path.join(directory, ".calls"), "a") as file:  # one write: lines of several processes do not mix
        file.write(f"{verb} {name} {number}\n")
