"""The rules for names: network, container ID, interface and plugin type. Every verb checks them."""

from __future__ import annotations

from libcni.errors import InvalidIdentifierError

__all__ = ["validate_container_id", "validate_interface_name", "validate_network_name"]

TYPE_CHECKING = False  # importing typing would slow down each plugin
if TYPE_CHECKING:
    from collections.abc import Iterable

# These names become parts of paths (records, drop-in directories) and of environment variables, so the rules also keep
# untrusted input inside its directory. No regular expressions: importing re would take longer than a plugin's run.
_FIRST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_OTHERS = _FIRST | frozenset("_.-")
_NAME_RULE = "it must start with an ASCII letter or digit, and contain only these, '_', '.' and '-'"
_NOT_IN_A_TYPE = frozenset("/\\\0")
_IFNAME_BYTES = 15
_KEPT_IFNAMES = frozenset({".", "..", "all", "default"})


def validate_network_name(name: object) -> str:
    """Return ``name`` if it is a valid network name (spec 1.1.0, section 1), else raise InvalidIdentifierError."""
    return _check_name("network name", name)


def validate_container_id(container_id: object) -> str:
    """Return ``container_id`` if it is valid (spec 1.1.0, section 2, Parameters), else raise InvalidIdentifierError."""
    return _check_name("container ID", container_id)


def _check_name(kind: str, value: object) -> str:
    name = check_text(kind, value)
    if name[0] not in _FIRST or not _OTHERS.issuperset(name):
        raise InvalidIdentifierError(kind, name, _NAME_RULE)
    return name


def validate_interface_name(ifname: object) -> str:
    """Return ``ifname`` if Linux accepts it as an interface's name, else raise InvalidIdentifierError.

    The rule (spec 0.4.0, Parameters): 1 to 15 bytes, not ``.`` or ``..``, no ``/``, ``:`` or white space. The
    kernel has two more rules: ``%`` is a pattern (for ``eth%d`` it creates ``eth0``, which no DEL would find); ``all``
    and ``default`` name the settings of all interfaces (/proc/sys/net/ipv4/conf).
    """
    name = check_text("interface name", ifname)
    if name in _KEPT_IFNAMES:
        raise InvalidIdentifierError("interface name", name, "it must not be '.', '..', 'all' or 'default'")
    # Most names pass the set test, so the loop over their characters seldom runs.
    if not _OTHERS.issuperset(name) and any(char in "/:%\0" or char.isspace() for char in name):
        raise InvalidIdentifierError("interface name", name, "it must not contain '/', ':', '%', NUL or white space")
    # The kernel limits bytes, not characters (IFNAMSIZ is 16 with the closing NUL).
    size = len(_encoded("interface name", name))
    if size > _IFNAME_BYTES:
        rule = f"it must have at most {_IFNAME_BYTES} bytes, and has {size}"
        raise InvalidIdentifierError("interface name", name, rule)
    return name


def check_loopback(ifname: str, plugin_types: Iterable[str]) -> None:
    """Raise InvalidIdentifierError if a plugin other than ``loopback`` would create the interface ``lo``.

    Each namespace has an interface ``lo`` already. No plugin can create or delete it, so no DEL would succeed.
    """
    if ifname == "lo" and any(name != "loopback" for name in plugin_types):
        rule = "it is the kernel's loopback interface, which only the plugin loopback sets up"
        raise InvalidIdentifierError("interface name", ifname, rule)


def check_plugin_type(plugin_type: object) -> str:
    """Return ``plugin_type`` if it can be the name of an executable, else raise InvalidIdentifierError.

    The rule (spec 1.1.0, section 1, ``type``): not empty, and one part of a path.
    """
    if isinstance(plugin_type, str) and plugin_type[:1] in _FIRST and _OTHERS.issuperset(plugin_type):
        return plugin_type  # enough for most types
    name = check_text("plugin type", plugin_type)
    # The type is joined to each CNI_PATH directory, and the file found there runs as root. A path would leave them.
    if name in {".", ".."} or not _NOT_IN_A_TYPE.isdisjoint(name):
        rule = "it must be a file name, not a path (no '/', '\\', NUL, '.' or '..')"
        raise InvalidIdentifierError("plugin type", name, rule)
    _encoded("plugin type", name)
    return name


def check_owner(owner: object) -> str:
    """Return ``owner``, which may be "", if it is printable text, else raise InvalidIdentifierError.

    The specification has no owners. Each record holds its owner, and listings show it.
    """
    if owner == "":
        return ""
    name = check_text("owner", owner)
    if not name.isprintable():
        raise InvalidIdentifierError("owner", name, "it must be printable text without control characters")
    return name


def check_text(kind: str, value: object) -> str:
    """Return ``value`` if it is a string and not empty, else raise InvalidIdentifierError with ``kind``."""
    if not isinstance(value, str):
        raise InvalidIdentifierError(kind, value, f"it must be a string, not {type(value).__name__}")
    if not value:
        raise InvalidIdentifierError(kind, value, "it must not be empty")
    return value


def _encoded(kind: str, name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise InvalidIdentifierError(kind, name, "UTF-8 cannot encode it") from None
