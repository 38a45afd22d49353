"""Real connections between all pods of a node: run there, it reads pods from stdin and prints what did not answer.

With the word ``serve`` it is the world outside: on port 80 it tells each caller the address that it has seen.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

OUTSIDE, NODE = "192.0.2.2", "192.0.2.1"
SECONDS, PATIENT_SECONDS = 2.0, 10.0
LOST_SECONDS = 0.7
"""For calls of which nobody expects an answer: each lost one waits so long."""
_LIBC = ctypes.CDLL(None, use_errno=True)

Call = tuple[str, str, tuple[str, int], str]
"""A label, the path of the caller's namespace, the address that it calls, and the answer that is in order."""


def serve() -> None:
    server = socket.create_server(("", 80), backlog=64)
    while True:
        connection, (caller, _) = server.accept()
        connection.recv(200)
        connection.sendall(caller.encode())
        connection.close()


def calls(pods: dict[str, tuple[str, int]], ports: dict[str, list[int]]) -> list[Call]:
    """Return all connections of a node in order: each pod to each other and out, the node to each, and from outside."""
    made: list[Call] = []
    for name, (_, pid) in pods.items():
        netns = f"/proc/{pid}/ns/net"
        made += [
            (f"{name} -> {other}", netns, (ip, 8080), other[:63]) for other, (ip, _) in pods.items() if other != name
        ]
        made.append((f"{name} -> outside", netns, (OUTSIDE, 80), NODE))
    made += [(f"node -> {name}", "/proc/self/ns/net", (ip, 8080), name[:63]) for name, (ip, _) in pods.items()]
    made += [
        (f"outside -> {name}:{port}", "/run/netns/outside", (NODE, port), name[:63])
        for name in pods
        for port in ports.get(name, [])
    ]
    return made


def answer(call: Call, seconds: float) -> str:
    """Make one connection, from a thread that has entered the caller's namespace; return "" if it is in order."""
    _, netns, address, expected = call
    try:
        with open(netns, encoding="ascii") as namespace:
            if _LIBC.setns(namespace.fileno(), 0x40000000):
                return os.strerror(ctypes.get_errno())
        with socket.create_connection(address, seconds) as connection:
            connection.settimeout(seconds)
            connection.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
            said = b"".join(iter(partial(connection.recv, 4096), b"")).decode().strip().rpartition("\n")[2]
    except OSError as error:
        return str(error)
    return "" if said == expected else f"{said!r} answered"


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        serve()
    given = json.load(sys.stdin)
    wanted = calls(given["pods"], given["ports"])
    lost = given["lost"]
    may_fail = {call[0] for call in wanted if lost is None or call[0] in lost}
    answers = make(wanted, [LOST_SECONDS if call[0] in may_fail else SECONDS for call in wanted])
    # On a busy machine an answer may take longer.
    again = [call for call in wanted if answers[call[0]] and call[0] not in may_fail]
    json.dump(answers | make(again, [PATIENT_SECONDS] * len(again)), sys.stdout)


def make(wanted: list[Call], times: list[float]) -> dict[str, str]:
    """Make calls at once; return what came of each."""
    # A thread for each: the network namespace belongs to the thread.
    with ThreadPoolExecutor(len(wanted) or 1) as threads:
        answers = threads.map(answer, wanted, times)
        return {call[0]: said for call, said in zip(wanted, answers, strict=True)}


if __name__ == "__main__":
    main()
