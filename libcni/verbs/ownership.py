"""Which namespace and which interface an attachment owns, so that DEL touches no other program's.

Plugins delete an interface by its name in the namespace at a path. Both may be another's by now. With an empty
CNI_NETNS they free their other resources and touch no interface.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import NamespaceMismatchError, RecordError
from libcni.store.attachments import recorded_result
from libcni.store.namespace import InterfaceLookup, process_start
from libcni.store.record import LEGACY, STALE_BOOT, Record
from libcni.verbs.node import Node

logger: logging.Logger = logging.getLogger("libcni")

_CLOCK_STEP = 60.0
"""Seconds: when a machine boots, its clock may be set after the first containers have started."""


def checked_conf(node: Node, rt: RuntimeConf) -> RuntimeConf:
    """Check an attachment's parameters, and return them with the absolute path of the namespace.

    The program may change its directory before its next verb. A text that leads to no file may be no path at all: it
    stays, as an absolute path does.

    Raises:
        InvalidIdentifierError: a name breaks its rule.
    """
    rt.check()
    if rt.netns and not rt.netns.startswith("/") and node.namespace_identity(rt.netns) is not None:
        with suppress(OSError):  # the directory has been removed
            # Not abspath: it cuts "..", and after a symbolic link that leads elsewhere.
            return rt.with_netns(os.path.join(os.getcwd(), rt.netns))
    return rt


def is_same_namespace(node: Node, record: Record) -> bool:
    """Return whether the recorded path still leads to the namespace of the ADD. If the record has no identity: True."""
    # After a reboot the numbers start again, so equal ones prove nothing.
    if record.state == STALE_BOOT:
        return False
    return record.netns_id is None or node.namespace_identity(record.netns) == record.netns_id


def entered_no_namespace(record: Record) -> bool:
    """Return whether nothing was at the path of an ADD, so that its plugins entered no namespace.

    Go records no namespace's identity: for its records this is unknown, and the answer False.
    """
    return bool(record.version) and record.netns_id is None and record.netns_cookie is None


def made_no_interface(record: Record) -> bool:
    """Return whether an ADD found no namespace, or found its interface there already and did not succeed.

    In the second case it was refused, or the plugin may have failed because the interface existed.
    """
    return entered_no_namespace(record) or (record.is_shared and record.result is None)


def is_another_namespace(record: Record, found: InterfaceLookup) -> bool:
    """Return whether the kernel's numbers show that a lookup was in another namespace than the recorded one.

    The kernel gives the inode of a removed namespace to the next one, but never its cookie.
    """
    return bool(record.netns_cookie and found.cookie and record.netns_cookie != found.cookie)


def is_same_interface(record: Record, found: InterfaceLookup) -> bool | None:
    """Return whether an interface is the recorded one; None if the record has no interface number."""
    # An interface's number is unique only within its namespace.
    if is_another_namespace(record, found):
        return False
    return None if record.ifindex is None else record.ifindex == found.ifindex


def look_up_interface(node: Node, rt: RuntimeConf) -> InterfaceLookup | None:
    """Look up the container's interface; None: the namespace cannot be examined, or each has such an interface (lo)."""
    return node.look_up(rt.netns, rt.ifname) if rt.netns and rt.ifname != "lo" else None


def netns_to_use(node: Node, record: Record | None, rt: RuntimeConf, *, use_given: bool = False) -> str:
    """Return the namespace for DEL, or "" for none.

    ==================================  ======================================================
    The caller gives                    DEL gets
    ==================================  ======================================================
    nothing (None)                      the recorded path; "" if another one is there
    an empty path                       ""
    a path, and there is no record      that path
    a path, with ``use_given``          that path
    any namespace, the ADD found none   ""
    the recorded namespace              that path, also if the record does not know it
    a path without a namespace          the recorded path; that path if nothing is there either
    another one, the recorded has gone  "", also if the ADD did not end, and its path leads to no namespace
    another one, the recorded exists    NamespaceMismatchError
    ==================================  ======================================================

    After a reboot nothing of the ADD exists, and inode numbers are used again: then DEL gets "" for every namespace.

    Raises:
        NamespaceMismatchError: the caller's namespace is not the recorded one, and both exist.
    """
    given = rt.netns
    if record is None or record.state == LEGACY or (use_given and given is not None):
        return given or ""
    is_there = is_same_namespace(node, record)
    # Where the ADD found nothing, a namespace that is there now is another's.
    found_none = entered_no_namespace(record)
    if found_none and node.namespace_identity(record.netns) is not None:
        is_there = False
    if not given:
        return record.netns if given is None and is_there else ""
    identity = node.namespace_identity(given)
    if found_none or record.state == STALE_BOOT:
        return given if identity is None else ""
    # Plugins treat a path without a namespace like a namespace that no longer exists.
    if identity is None:
        return record.netns if record.netns_id is not None and is_there else given
    # Go records no identity: then the path decides.
    recorded = record.netns_id or node.namespace_identity(record.netns)
    if recorded is None or identity == recorded:
        return given
    # An ADD with a wrong path made nothing there, and must not stop the ADD with the right one.
    if not is_there or (record.result is None and node.is_no_namespace(record.netns)):
        return ""
    raise NamespaceMismatchError(
        f"container {record.container_id}, interface {record.ifname}, network {record.network}: it was attached in "
        f"the namespace {record.netns}, and {given} is another one",
        container_id=record.container_id,
        ifname=record.ifname,
        network=record.network,
        netns=given,
        recorded_netns=record.netns,
    )


def netns_of_own_interface(
    node: Node, record: Record | None, rt: RuntimeConf, network: str, *, is_unreadable: bool = False
) -> str:
    """Return the namespace for DEL, or "" if the interface in it is not the one of the ADD.

    =====================================================  =======================================================
    The interface of that name in the namespace            DEL gets
    =====================================================  =======================================================
    cannot be looked up                                    the path
    may exist or not, but the namespace is another one     ""
    may exist or not, but the path is a younger process's  ""
    does not exist                                         the path
    has the recorded number                                the path; "" if an ADD that failed had found it there, or
                                                           if no cookie is known and the hardware address is another
    has another number                                     ""
    no number in the record, and no other record names it  the path
    no number in the record, and is another record's       ""
    no record at all                                       ""; the path if there is an unreadable one
    no record at all, and is another record's              NamespaceMismatchError
    is in the program's namespace, which no record names   ""
    =====================================================  =======================================================

    Args:
        node: examines the namespace and the records.
        record: the attachment's record, or None.
        rt: the attachment, with the namespace.
        network: the network's name, if there is no record.
        is_unreadable: whether there is a record of this attachment that cannot be read: so an ADD was made.

    Raises:
        NamespaceMismatchError: there is no record of this attachment, and there is one of another attachment that has
            this interface in this namespace.
    """
    netns = rt.netns or ""
    found = look_up_interface(node, rt)
    is_elsewhere = found is not None and record is not None and _is_elsewhere(node, record, netns, found)
    # In another namespace the plugins could find more than this interface.
    if found is None or not (found.ifindex or is_elsewhere):
        return netns
    # ADD refuses this namespace, and its caller may call DEL after that. Go records only a path. If that is
    # /proc/PID/ns/net, the number may be a process of the host by now.
    if (record is None or record.netns_id is None) and node.is_own_namespace(netns):
        logger.warning(
            "container %s: %s is this program's own namespace, so DEL leaves its %s alone",
            rt.container_id,
            netns,
            rt.ifname,
        )
        return ""
    is_same = None if record is None else not is_elsewhere and is_same_interface(record, found)
    # Before Linux 5.14 no cookie shows that the inode is another namespace's by now, and most have an interface of this
    # number.
    if record is not None and is_same and not (record.netns_cookie and found.cookie):
        is_same = not _has_other_mac(node, record, netns)
    if record is not None and is_same is not None:
        if is_same and not made_no_interface(record):
            return netns
        whose = "existed before its ADD" if is_same else "is not the one of its ADD"
    else:
        other = _other_attachment_with(node, record, rt, network, found)
        if other is None:
            if record is not None or is_unreadable:
                return netns
            # Runtimes call DEL after an ADD that was refused, and then once more.
            logger.warning(
                "container %s: no record says that this library made %s in %s, so DEL leaves it alone; "
                "with use_given it removes it",
                rt.container_id,
                rt.ifname,
                netns,
            )
            return ""
        whose = f"belongs to container {other.container_id}, network {other.network}"
        if record is None:
            raise NamespaceMismatchError(
                f"container {rt.container_id}, interface {rt.ifname}, network {network}: there is no record of it, and "
                f"{rt.ifname} in {netns} {whose}",
                container_id=rt.container_id,
                ifname=rt.ifname,
                network=network,
                netns=netns,
                recorded_netns=other.netns,
            )
    logger.warning("%s: %s in %s %s, so DEL leaves it alone", record.path, rt.ifname, netns, whose)
    return ""


def _is_elsewhere(node: Node, record: Record, netns: str, found: InterfaceLookup) -> bool:
    """Return whether a lookup was in another namespace than the one of the ADD."""
    return is_another_namespace(record, found) or _is_of_another_process(node, record, netns)


def _is_of_another_process(node: Node, record: Record, netns: str) -> bool:
    """Return whether a path such as ``/proc/PID/ns/net`` leads to another container's process by now.

    Go records neither the namespace nor the interface's number, and the kernel uses process numbers again. But a
    container's process is older than its record, and most plugins report the interface's hardware address.
    """
    if record.netns_id is not None or not netns.startswith("/proc/"):
        return False
    try:
        # The caller may give the path of a younger process of the container.
        started = process_start(netns.split("/")[2]) if netns == record.netns else None
        if started is not None and started > os.stat(record.path).st_mtime + _CLOCK_STEP:
            return True
    except OSError:
        return False
    return _has_other_mac(node, record, netns)


def _has_other_mac(node: Node, record: Record, netns: str) -> bool:
    """Return whether the interface has another hardware address than the one in the result of its ADD."""
    try:
        interfaces = recorded_result(record).interfaces
    except RecordError:
        return False
    macs = {one.mac.lower() for one in interfaces if one.mac and one.sandbox and one.name == record.ifname}
    found = node.mac_of(netns, record.ifname)
    # Nothing is known about an address in another notation.
    return bool(macs and found) and found not in macs and all(len(mac) == len(found) and ":" in mac for mac in macs)


def _other_attachment_with(
    node: Node, record: Record | None, rt: RuntimeConf, network: str, found: InterfaceLookup
) -> Record | None:
    """Return the record of another attachment that has this interface, or None."""
    identity = record.identity if record is not None else (network, rt.container_id, rt.ifname)
    here = node.namespace_identity(rt.netns or "")
    try:
        for other in node.records.iter_records():
            if other.ifname != rt.ifname or other.identity == identity or other.state == STALE_BOOT:
                continue
            if node.is_of_caller(other):  # this is a plugin that does the work of that attachment
                continue
            if other.is_shared and record is not None:  # it uses an interface that may be the one of ``record``
                continue
            is_here = (other.netns_id or node.namespace_identity(other.netns)) == here
            if is_here and _has_interface(other, record, found):
                return other
    except RecordError as error:
        logger.warning("DEL goes on without knowing the owner of %s: %s", rt.ifname, error)
    return None


def _has_interface(other: Record, record: Record | None, found: InterfaceLookup) -> bool:
    """Return whether the attachment ``other`` has an interface; ``record`` itself has no interface number."""
    is_same = is_same_interface(other, found)
    if is_same is not None:
        return is_same
    if record is None:
        return True
    # ADD refuses to start if the interface exists, so the later ADD made the interface that exists now. The time since
    # the boot comes first: the clock may have been set back between the two.
    if other.uptime is not None and record.uptime is not None and other.boot == record.boot:
        return other.uptime > record.uptime
    if other.created is not None and record.created is not None:
        return other.created > record.created
    return other.result is not None and record.result is None
