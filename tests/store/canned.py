"""Records, and the files of a store."""

from __future__ import annotations

import base64
import errno
import os
from pathlib import Path
from typing import Any

from libcni.store.boot import boot_id
from libcni.store.model import READY, Ours, Record
from libcni.store.place import Known
from libcni.store.records import RecordStore

CONFIG = b'{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"a"}]}'
RESULT = '{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}'
FULL = Ours(
    network="net",
    container_id="c1",
    ifname="eth0",
    state=READY,
    netns="/run/netns/blue",
    netns_id=(4, 4026531840),
    config=CONFIG,
    version="1.0.0",
    plugins=('{"type":"a", "x":1e400}', '{"type":"b"}'),
    args=(("K", "V"), ("IgnoreUnknown", "1")),
    capability_args='{"portMappings":[{"hostPort":8080}]}',
    network_args='{"cni":{}}',
    result=RESULT,
    interface=Known(2, "0a:58:0a:00:00:02"),
    created=1700000000.5,
    boot=boot_id(),
    owner="a-runtime",
)
# as Go libcni 1.1 writes it: json.Marshal of its struct; "netns", "cniArgs", "capabilityArgs", "result": omitempty
GO_FULL = (
    b'{"kind":"cniCacheV1","containerId":"c1","config":"' + base64.b64encode(CONFIG) + b'","ifName":"eth0",'
    b'"networkName":"net","netns":"/run/netns/blue","cniArgs":[["K","V"],["IgnoreUnknown","1"]],'
    b'"capabilityArgs":{"portMappings":[{"hostPort":8080}]},"result":' + RESULT.encode() + b"}"
)
GO_BARE = b'{"kind":"cniCacheV1","containerId":"c1","config":null,"ifName":"eth0","networkName":"net"}'


def bare(network: str = "net", container_id: str = "c1", ifname: str = "eth0", **more: Any) -> Record:
    return Ours(network, container_id, ifname, **{"config": CONFIG, "boot": boot_id(), **more})


def written(store: RecordStore, record: Record) -> Record:
    """Write a record, and return it as it is on disk."""
    with store.begin(record) as journal:
        path = journal.record.path
    read = store.read(path.rpartition("/")[2])
    assert read is not None
    return read


def files(store: RecordStore) -> list[str]:
    return sorted(os.listdir(store.results)) if os.path.isdir(store.results) else []


def put(store: RecordStore, name: str, data: bytes) -> Path:
    path = Path(store.results, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def no_space(*_args: Any, **_more: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def opened(path: Path) -> int:
    """Count the descriptors of this process that lead to a file."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}") == str(path)
        except FileNotFoundError:
            continue
    return count
