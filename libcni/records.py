"""Attachment records on disk: what was attached, how, and with which result. The cache, in Go libcni's own format.

A record is ``<cache_dir>/results/<network>-<container>-<interface>``, kind ``cniCacheV1``. What Go does not have stands
under one key of its own, ``libcni``, which Go ignores. The file's name is only a place to look: the identity inside
decides. A name that is too long, or taken by another identity, gets a hash.
"""

from __future__ import annotations

import base64
import errno
import functools
import hashlib
import itertools
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from libcni import jsontext
from libcni.errors import InvalidIdentifierError, RecordError, shorten
from libcni.identifiers import check_container_id, check_ifname, check_network_name
from libcni.jsontext import JSONTextError, dumps

__all__ = ["CORRUPT", "LEGACY", "PENDING", "READY", "STALE_BOOT", "Record", "RecordStore", "boot_id"]

PENDING, READY, STALE_BOOT, CORRUPT, LEGACY = "pending", "ready", "stale-boot", "corrupt", "legacy"

_KIND = "cniCacheV1"
_RESULT_KEYS = {"cniVersion", "ip4", "ip6", "ips", "interfaces"}  # 0.1.0 has no cniVersion in its results
_NAME_BYTES = 255
_CLAIMS = 10
_HOUR = 3600.0
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
_DIR_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDONLY
_serial = itertools.count()

Identity = tuple[str, str, str]
"""(network, container ID, interface name)."""


@dataclass(frozen=True, slots=True)
class Record:
    """One attachment as it stands on disk.

    Attributes:
        network, container_id, ifname: its identity; all "" where the file says none (corrupt or legacy).
        state: ``pending`` (its ADD has not ended), ``ready``, ``stale-boot`` (made before the last reboot), ``corrupt``
            (cannot be read; ``problem`` says why), ``legacy`` (a bare result, as Go libcni wrote before 0.8).
        netns: as given to ADD. netns_id: its (device, inode) then, or None.
        config: the network configuration document, byte for byte.
        version: the spec version that was used; "" where the record was made by Go.
        plugins: the text of each plugin configuration that was used, drop-ins included; () where made by Go.
        args: CNI_ARGS. capability_args, network_args: JSON objects as text, or "".
        result: the result of the ADD as text, or None.
        created: seconds since 1970, or None.
        boot: the boot identity when it was made, or "".
        path: the file.
        problem: why it is corrupt.
    """

    network: str = ""
    container_id: str = ""
    ifname: str = ""
    state: str = READY
    netns: str = ""
    netns_id: tuple[int, int] | None = None
    config: bytes = b""
    version: str = ""
    plugins: tuple[str, ...] = ()
    args: tuple[tuple[str, str], ...] = ()
    capability_args: str = ""
    network_args: str = ""
    result: str | None = None
    created: float | None = None
    boot: str = ""
    path: str = ""
    problem: str = ""

    @property
    def identity(self) -> Identity:
        """(network, container ID, interface name)."""
        return self.network, self.container_id, self.ifname

    @property
    def complete(self) -> bool:
        """Whether the ADD ended well, in this boot or an earlier one."""
        return self.state == READY or (self.state == STALE_BOOT and self.result is not None)


@functools.cache
def boot_id() -> str:
    """Return what identifies this boot of the machine, or "" where the system does not say."""
    try:
        descriptor = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:  # not open(): it needs codecs, which are gone while the interpreter shuts down
        return os.read(descriptor, 100).decode().strip()
    finally:
        os.close(descriptor)


def encode(record: Record) -> bytes:
    """Return the file of a record: Go's keys in Go's order, then ours."""
    parts = {
        "kind": dumps(_KIND),
        "containerId": dumps(record.container_id),
        "config": dumps(base64.b64encode(record.config).decode()),
        "ifName": dumps(record.ifname),
        "networkName": dumps(record.network),
        "netns": dumps(record.netns) if record.netns else "",
        "cniArgs": dumps(record.args) if record.args else "",
        "capabilityArgs": record.capability_args,
        "result": record.result or "",
        "libcni": _encode_own(record),
    }
    return jsontext.join_object([(f'"{key}"', text) for key, text in parts.items() if text]).encode()


def _encode_own(record: Record) -> str:
    parts = {
        "state": dumps(record.state),
        "created": dumps(record.created),
        "bootId": dumps(record.boot),
        "netnsId": dumps(record.netns_id),
        "cniVersion": dumps(record.version),
        "plugins": jsontext.join_array(list(record.plugins)),
        "networkArgs": record.network_args or "null",
    }
    return jsontext.join_object([(f'"{key}"', text) for key, text in parts.items()])


def decode(data: bytes, path: str) -> Record:
    """Return the record in a file's bytes; one that cannot be read comes back in state corrupt, never as an error."""
    try:
        return _decode(data, path)
    except (
        JSONTextError,
        InvalidIdentifierError,
        KeyError,
        TypeError,
        ValueError,
        ArithmeticError,
        RecursionError,
    ) as error:
        problem = "it is empty" if not data.strip(b"\0 \n") else f"it is not a record: {shorten(str(error), 300)}"
        return Record(state=CORRUPT, path=path, problem=problem)


def _decode(data: bytes, path: str) -> Record:
    found = {member.key: member for member in jsontext.members(jsontext.decode(data))}
    kind = found["kind"].value if "kind" in found else None
    if kind is None and found.keys() & _RESULT_KEYS:
        return Record(state=LEGACY, path=path, result=data.decode())
    if kind != _KIND:
        raise ValueError(f"its kind is {kind!r}, not {_KIND!r}")
    value = {key: member.value for key, member in found.items()}
    own = {member.key: member for member in jsontext.members(found["libcni"].text)} if "libcni" in found else {}
    return Record(
        network=check_network_name(_text(value["networkName"])),
        container_id=check_container_id(_text(value["containerId"])),
        ifname=check_ifname(_text(value["ifName"])),
        netns=_environment_text(_text(value.get("netns") or "")),
        config=base64.b64decode(_text(value.get("config") or "")),
        args=tuple((_text(key), _text(text)) for key, text in value.get("cniArgs") or ()),
        capability_args=_object_text(found.get("capabilityArgs")),
        result=found["result"].text if value.get("result") is not None else None,
        path=path,
        **_own_fields(own),
    )


def _own_fields(own: dict[str, jsontext.Member]) -> dict[str, Any]:
    """Return what Go does not have; nothing where Go made the record."""
    if not own:
        return {}
    boot = _text(own["bootId"].value)
    created = own["created"].value
    state = _text(own["state"].value)
    if state not in {PENDING, READY}:
        raise ValueError(f"its state is {state!r}")
    return {
        "state": STALE_BOOT if boot and boot_id() and boot != boot_id() else state,
        "netns_id": _netns_id(own["netnsId"].value),
        "version": _text(own["cniVersion"].value),
        "plugins": tuple(element.text for element in jsontext.elements(own["plugins"].text)),
        "network_args": _object_text(own["networkArgs"]),
        "created": None if created is None else float(_number(created)),
        "boot": boot,
    }


def _netns_id(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    device, inode = value
    return int(_number(device)), int(_number(inode))


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number was expected, not {type(value).__name__}")
    return value


def _object_text(member: jsontext.Member | None) -> str:
    """Return the text of an object, or "" where there is none or an empty one."""
    if member is None or not member.value:
        return ""
    if not isinstance(member.value, dict):
        raise TypeError(f"{member.key} is not an object")
    return member.text


def _environment_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL in it")
    os.fsencode(text)
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string was expected, not {type(value).__name__}")
    return value


class RecordStore:
    """The records of one cache directory.

    Each method is one look or one change; nothing is remembered between calls, so that the directory may be removed
    and made again at any time. What cannot be done raises RecordError.
    """

    def __init__(self, cache_dir: str, *, durable: bool = True) -> None:
        self.cache_dir = cache_dir
        self.durable = durable
        self.results: str = f"{cache_dir}/results"

    def find(self, identity: Identity) -> Record | None:
        """Return the record of an identity; a corrupt file under its name comes back as such; None: there is none."""
        corrupt: Record | None = None
        for name in _names(identity):
            record = self._read_there(name)
            if record is None:
                continue
            if record.state == LEGACY:
                network, container_id, ifname = identity
                return replace(record, network=network, container_id=container_id, ifname=ifname)
            if record.identity == identity:
                return record
            if record.state == CORRUPT:
                corrupt = corrupt or record
        return corrupt

    def records(self, container_id: str | None = None) -> list[Record]:
        """Return all records, or those of one container, by file name; corrupt ones included, nothing changed."""
        return self._matching(f"-{container_id}-" if container_id else "", container_id, self._read_or_tell)

    def of_interface(self, container_id: str, ifname: str) -> list[Record]:
        """Return the records of one (container, interface) on whatever network; not the corrupt ones."""
        wanted = (container_id, ifname)
        found = self._matching(f"-{container_id}-{ifname}", container_id, self._read)
        return [record for record in found if (record.container_id, record.ifname) == wanted]

    def _matching(self, part: str, container_id: str | None, read: Callable[[str, int], Record | None]) -> list[Record]:
        try:
            with self._directory(self.results) as directory:
                names = [name for name in os.listdir(directory) if part in name or name[0] == "~"]
                found = [read(name, directory) for name in sorted(names, key=os.fsencode)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error("cannot be listed", self.results, error) from error
        return [one for one in found if one and (container_id is None or one.container_id in {container_id, ""})]

    def _read_or_tell(self, name: str, directory: int) -> Record | None:
        """Read a record; one that the system does not let us read must not hide the others."""
        try:
            return self._read(name, directory)
        except RecordError as error:
            return Record(state=CORRUPT, path=f"{self.results}/{name}", problem=str(error))

    def _list(self, path: str) -> list[str]:
        try:
            with self._directory(path) as directory:
                return os.listdir(directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error("cannot be listed", path, error) from error

    def begin(self, record: Record) -> Record:
        """Write a record that is not there yet, claim its name, and return it with its path.

        A record of the same identity is replaced, at ``record.path`` if that is given; a corrupt file in the way is
        set aside.
        """
        if record.path:
            self.complete(record)
            return record
        with self._temporary(record) as (temporary, source):
            for name in _names(record.identity):
                path = self._claim(source, temporary, name, record.identity)
                if path is not None:
                    return replace(record, path=path)
        raise RecordError("the record's name and its hashed name are both taken", path=self.results)

    def _claim(self, source: int, temporary: str, name: str, identity: Identity) -> str | None:
        """Give a temporary file its name; return its path, or None where the name is taken by another identity."""
        path = f"{self.results}/{name}"
        try:
            with self._directory(self.results) as directory:
                for _ in range(_CLAIMS):
                    if _link(temporary, name, source, directory):
                        return path
                    there = self._read(name, directory)
                    if there is None:
                        continue
                    if there.state == CORRUPT:
                        self.set_aside(there)
                        continue
                    if there.identity == identity or there.state == LEGACY:
                        os.rename(temporary, name, src_dir_fd=source, dst_dir_fd=directory)
                        return path
                    return None
        except OSError as error:
            raise self._error("cannot be written", path, error) from error
        raise RecordError(f"{path}: cannot be written: others keep changing it", path=path)

    def complete(self, record: Record) -> None:
        """Replace the file of a record that has begun with what the record says now."""
        name = record.path.rpartition("/")[2]
        with self._temporary(record) as (temporary, source):
            try:
                with self._directory(self.results) as directory:
                    os.rename(temporary, name, src_dir_fd=source, dst_dir_fd=directory)
            except OSError as error:
                raise self._error("cannot be written", record.path, error) from error

    def forget(self, record: Record) -> None:
        """Remove the file of a record; one that has gone already is no error."""
        try:
            with self._directory(self.results) as directory:
                os.unlink(record.path.rpartition("/")[2], dir_fd=directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error("cannot be removed", record.path, error) from error

    def set_aside(self, record: Record) -> str:
        """Move the file of a corrupt record to ``<cache_dir>/corrupt/`` and return its new path."""
        name = record.path.rpartition("/")[2]
        aside = f"{self.cache_dir}/corrupt"
        target = f"{name[:200]}.{time.time_ns()}"
        try:
            with self._directory(self.results) as source, self._directory(aside, create=True) as directory:
                os.rename(name, target, src_dir_fd=source, dst_dir_fd=directory)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._error("cannot be moved aside", record.path, error) from error
        return f"{aside}/{target}"

    def sweep(self, *, older_than: float = _HOUR, dry_run: bool = False) -> list[str]:
        """Remove what writers that were killed have left in ``tmp``; return the paths.

        ``older_than``: seconds since the last write. A file whose writer lives is left alone, unless it is 0: then the
        caller knows that there is no writer.
        """
        path = f"{self.cache_dir}/tmp"  # noqa: S108 - not the system's
        names = self._list(path)
        if not names:
            return []
        try:
            with self._directory(path) as directory:
                stale = [name for name in sorted(names) if _is_left_over(name, directory, older_than)]
                for name in () if dry_run else stale:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=directory)
        except OSError as error:
            raise self._error("cannot be swept", path, error) from error
        return [f"{path}/{name}" for name in stale]

    def _read_there(self, name: str) -> Record | None:
        try:
            with self._directory(self.results) as directory:
                return self._read(name, directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("cannot be read", f"{self.results}/{name}", error) from error

    def _read(self, name: str, directory: int) -> Record | None:
        path = f"{self.results}/{name}"
        try:
            data = _read_file(name, directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("cannot be read", path, error) from error
        if data is None:
            return Record(state=CORRUPT, path=path, problem="it is not a regular file")
        return decode(data, path)

    @contextmanager
    def _temporary(self, record: Record) -> Iterator[tuple[str, int]]:
        """Write the record under a name of its own outside ``results``; yield the name and its directory."""
        name = f"{os.getpid()}-{time.monotonic_ns()}-{next(_serial)}"
        path = f"{self.cache_dir}/tmp"  # noqa: S108 - not the system's
        try:
            _make_directory(self.results)
            with self._directory(path, create=True) as directory:
                try:
                    _write_file(name, directory, encode(record), durable=self.durable)
                    yield name, directory
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=directory)
        except OSError as error:
            raise self._error("cannot be written", path, error) from error

    @contextmanager
    def _directory(self, path: str, *, create: bool = False) -> Iterator[int]:
        if create:
            _make_directory(path)
        descriptor = os.open(path, _DIR_FLAGS)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _error(self, problem: str, path: str, error: OSError) -> RecordError:
        text = error.strerror or str(error)
        return RecordError(f"{path}: {problem}: {text}", path=path, errno=error.errno)


def _link(temporary: str, name: str, source: int, directory: int) -> bool:
    """Give a file a name that nothing has yet; return whether the name was free."""
    try:
        os.link(temporary, name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # this file system has no hard links: look first, and rename; only other identities' verbs could come between
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(temporary, name, src_dir_fd=source, dst_dir_fd=directory)
            return True
        return False
    return True


def _is_left_over(name: str, directory: int, older_than: float) -> bool:
    try:
        age = time.time() - os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return False
    return older_than <= 0 or (age > older_than and not os.path.exists(f"/proc/{name.partition('-')[0]}"))


def _names(identity: Identity) -> list[str]:
    """Return the file names that a record may have, the first choice first."""
    name = "-".join(identity)
    # ~ starts no network's name and stands in none, so a hashed name is never another identity's plain one
    mark = hashlib.sha256("/".join(identity).encode()).hexdigest()[:32]
    if len(os.fsencode(name)) > _NAME_BYTES:
        return [f"~{mark}"]
    hashed = f"{name}~{mark}"
    return [name, hashed if len(os.fsencode(hashed)) <= _NAME_BYTES else f"~{mark}"]


def _make_directory(path: str) -> None:
    """Make a directory and what is missing above it, for this user alone."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        if parent and parent != path:
            _make_directory(parent)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)


def _read_file(name: str, directory: int) -> bytes | None:
    """Return what is in a file, or None where it is something else, such as a symbolic link."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            return None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        data = os.read(descriptor, status.st_size + 1)
        while len(data) > status.st_size and (more := os.read(descriptor, 1 << 20)):  # it grows
            data += more
        return data
    finally:
        os.close(descriptor)


def _write_file(name: str, directory: int, data: bytes, *, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)  # the name comes after the bytes: a 0-byte record is the field's oldest bug
    finally:
        os.close(descriptor)
