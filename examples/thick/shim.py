#!/usr/bin/python3 -IS
"""The executable of a thick plugin, in the directory of the plugins: it passes each call to daemon.py."""

import json
import os
import socket
import sys


def main(path: str) -> int:
    """Pass this call to the daemon, and print its answer."""
    env = {name: value for name, value in os.environ.items() if name.startswith("CNI_")}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps({"env": env, "stdin": sys.stdin.read()}).encode())
        connection.shutdown(socket.SHUT_WR)
        status, stdout, stderr = json.loads(connection.makefile().read())
    sys.stderr.write(stderr)
    sys.stdout.write(stdout)
    return int(status)


if __name__ == "__main__":
    sys.exit(main("/run/thick.sock"))
