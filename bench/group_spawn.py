"""6. ADD from a parent of 2 GiB and from a small one: what a start costs must not grow with the parent."""

from __future__ import annotations

from common import Row, chain_conf, median, p99, peer, subject
from group_chain import turns

NAME = "6 large parent"
MEBIBYTES = 2048


def run(*, quick: bool) -> list[Row]:
    conf = chain_conf()
    small, large = subject("sync", conf), subject("sync, 2 GiB", conf, "--hold", str(MEBIBYTES))
    go = peer(conf)
    go_large = peer(conf, "-hold", str(MEBIBYTES))
    go_large.name = "Go, 2 GiB"
    workers = [small, large, go, go_large]
    each = turns(workers, 40 if quick else 200)
    for worker in workers:
        worker.close()
    base = {"sync": median(each["sync"]), "Go": median(each["Go"])}
    return [
        Row(NAME, "ADD", name, "ms", median(taken), p99(taken), median(taken) / base[name.split(",")[0]],
            name.split(",")[0], 1.1 if name == large.name else None)
        for name, taken in each.items()
    ]  # fmt: skip
