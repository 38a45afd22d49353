"""A network configuration: parsed and checked, with the original text kept."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from libcni._regular_file import UnusableFileError, read_regular
from libcni.config import jsontext
from libcni.config.identifiers import check_network_name, check_plugin_type
from libcni.config.jsontext import Member, ObjectText
from libcni.config.schema import document_text, format_location, read_list_keys, read_plugin_keys, split
from libcni.config.versions import DEFAULT_VERSION, choose_version
from libcni.errors import ConfigError, InvalidIdentifierError, VersionError, short_repr

__all__ = ["NetworkConfigList", "PluginConfig", "inject_conf"]

Form = Literal["list", "plugin"]
"""What a document is: a configuration list, or a single plugin configuration."""

_FORMS: dict[str, Form] = {".conflist": "list", ".conf": "plugin", ".json": "plugin"}
_MAX_BYTES = 16 << 20
# Keys of a plugin object that the runtime writes itself (spec 1.1.0, section 3, Deriving execution configuration).
_MADE_BY_RUNTIME = {"name", "cniVersion", "runtimeConfig", "prevResult", "capabilities"}
# Reserved for the runtime. Removed: a document could forge the list of valid attachments that GC sends.
_RESERVED_PREFIX = "cni.dev/"


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """One plugin's configuration: an element of ``plugins``, a drop-in file, or a document of its own.

    Attributes:
        type: the plugin's type, which is its executable's file name.
        text: the JSON object, unchanged from the document.
        name: the object's ``name``, or None. In a list, the list's name is used instead.
        cni_version: the object's ``cniVersion``, or None. In a list, the list's version is used instead.
        capabilities: the capabilities that the object declares as true, in their order.
        ipam_type: the type of the IPAM plugin that the plugin delegates to, or None.
        source: the path of the drop-in file that the object was read from; None if it is part of the list.
        warnings: probable mistakes in the object.
        forwarded: the object's members that the plugin receives unchanged, computed from ``text``.
        forwarded_text: the same members as text.
    """

    type: str
    text: str
    name: str | None = None
    cni_version: str | None = None
    capabilities: tuple[str, ...] = ()
    ipam_type: str | None = None
    source: str | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)
    forwarded: tuple[Member, ...] = field(default=(), repr=False, compare=False)
    forwarded_text: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the members that the plugin receives, also for an object that was made in code."""
        # Computed once for each document and not for each call: DEL, CHECK and retries of a chain use it again.
        forwarded = self.forwarded or tuple(
            member for member in split(self.text, None, "") if _is_forwarded(member.key)
        )
        object.__setattr__(self, "forwarded", forwarded)
        text = ",".join(f"{member.key_text}:{member.text}" for member in forwarded)
        object.__setattr__(self, "forwarded_text", text)

    @classmethod
    def from_bytes(cls, data: bytes | str, *, file: str | None = None) -> PluginConfig:
        """Read a single plugin configuration, a ``.conf`` document.

        Raises:
            ConfigError: the document is invalid; the error names ``file`` and the location.
        """
        plugin = _parse_plugin(document_text(data, file), file)
        _log_warnings(plugin.warnings, file)
        return plugin

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PluginConfig:
        """Read a ``.conf`` file.

        Raises:
            ConfigError: as for ``from_bytes``, or the file cannot be read.
        """
        return cls.from_bytes(read_document(path), file=os.fspath(path))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> PluginConfig:
        """Make a plugin configuration from decoded JSON.

        Raises:
            ConfigError: as for ``from_bytes``, or a value has no JSON form.
        """
        return cls.from_bytes(_encode(document))


@dataclass(frozen=True, slots=True)
class NetworkConfigList:
    """A network: a name, a spec version, and the plugins to run in order (spec 1.1.0, section 1).

    Attributes:
        name: the network's name.
        cni_version: the spec version that is used, the highest known of ``cniVersion`` and ``cniVersions``.
        plugins: the plugins in order, drop-ins last.
        disable_check: whether CHECK succeeds without running anything.
        disable_gc: whether GC succeeds without running anything.
        load_only_inlined_plugins: whether drop-ins are ignored.
        cni_versions: all versions that the document names.
        raw: the document as it was read.
        file: the path that the document was read from, or None.
        is_list: False if the list was made from a single plugin configuration.
        warnings: probable mistakes in the document.
    """

    name: str
    cni_version: str
    plugins: tuple[PluginConfig, ...]
    disable_check: bool = False
    disable_gc: bool = False
    load_only_inlined_plugins: bool = False
    cni_versions: tuple[str, ...] = ()
    raw: bytes = field(default=b"", repr=False)
    file: str | None = None
    is_list: bool = field(default=False, repr=False, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_bytes(cls, data: bytes | str, *, file: str | None = None) -> NetworkConfigList:
        """Read a list, or a single plugin configuration as a list of one. Drop-ins are not read.

        Raises:
            ConfigError: the document is invalid; the error names ``file`` and the location.
        """
        net = parse_network(data, file)
        net.log_warnings()
        return net

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> NetworkConfigList:
        """Read a ``.conflist``, ``.conf`` or ``.json`` file, and its drop-in plugins ``<dir>/<name>/*.conf``.

        Raises:
            ConfigError: as for ``from_bytes``; or the file cannot be read, is not a regular file or is larger than
                16 MiB, a drop-in is wrong, there is no plugin at all, or the content does not match the file's ending.
        """
        net = read_network(os.fspath(path))
        net.log_warnings()
        return net

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> NetworkConfigList:
        """Make a list from decoded JSON.

        Raises:
            ConfigError: as for ``from_bytes``, or a value has no JSON form.
        """
        return cls.from_bytes(_encode(document))

    @classmethod
    def from_plugin(cls, plugin: PluginConfig, *, file: str | None = None) -> NetworkConfigList:
        """Turn a single plugin configuration into a list of one, with its own name and version.

        Raises:
            ConfigError: the name is missing or invalid, or the version is unknown.
        """
        return _list_of_one(plugin, file)

    def with_version(self, version: str) -> NetworkConfigList:
        """Return a copy of this list at another spec version."""
        return self if version == self.cni_version else replace(self, cni_version=version)

    def with_plugins(self, plugins: Iterable[PluginConfig]) -> NetworkConfigList:
        """Return a copy of this list with ``plugins`` appended, for example drop-ins."""
        more = tuple(plugins)
        warnings = self.warnings + tuple(text for plugin in more for text in plugin.warnings)
        return replace(self, plugins=self.plugins + more, warnings=warnings) if more else self

    def unused_capabilities(self, capability_args: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in ``capability_args`` that no plugin of this list declares."""
        declared = {name for plugin in self.plugins for name in plugin.capabilities}
        return tuple(name for name in capability_args if name not in declared)

    def log_warnings(self) -> None:
        """Log ``warnings`` to the logger ``libcni``."""
        _log_warnings(self.warnings, self.file)


def check_plugins(net: NetworkConfigList) -> None:
    """Raise ConfigError if a network has no plugins: a verb would do nothing, and report success."""
    if not net.plugins:
        raise ConfigError(f'network "{net.name}" has no plugins', file=net.file, location="plugins")


def inject_conf(plugin: PluginConfig, values: Mapping[str, Any]) -> PluginConfig:
    """Return a plugin configuration with some top-level keys replaced or added; the rest of its text stays.

    Raises:
        ConfigError: a key is empty, a value is None or has no JSON form, or the new configuration is wrong.
    """
    for key, value in values.items():
        if not key or value is None:
            raise ConfigError("an injected key must not be empty, nor its value None", location=repr(key))
    # The round trip through JSON turns models and tuples into plain values, and finds values without a JSON form.
    plain = jsontext.parse(_encode(values).decode())
    new = {key: jsontext.dumps(value) for key, value in plain.items()}
    own = jsontext.members(plugin.text)
    parts = [(member.key_text, new.get(member.key, member.text)) for member in own]
    parts += [(jsontext.dumps(key), text) for key, text in new.items() if key not in {member.key for member in own}]
    text = document_text(jsontext.join_object(parts), plugin.source)
    return replace(_parse_plugin(text, plugin.source), source=plugin.source)


def parse_network(
    data: bytes | str, file: str | None = None, *, form: Form | None = None, lenient: bool = False
) -> NetworkConfigList:
    """Parse a document without logging; raises ConfigError.

    Args:
        data: the document.
        file: the document's path, for errors.
        form: the form that the document must have; None: either.
        lenient: accept every document that Go libcni accepts. For documents from records: DEL must be able to run.
    """
    text = document_text(data, file, lenient=lenient)
    found = split(text, file, "", objects="plugins")
    by_key = {member.key: member for member in found}
    if _form_of(by_key, form, file, lenient=lenient) == "plugin":
        return _list_of_one(_plugin_of(text.strip(), found, file, "", lenient=lenient), file, lenient=lenient)
    document = read_list_keys(by_key, file)
    plugins = _plugins_of(document, file, lenient=lenient)
    version, versions = document.get("cniVersion", ""), document.get("cniVersions")
    return NetworkConfigList(
        name=_checked(check_network_name, document["name"], file, "name"),
        cni_version=_chosen_version(version, versions, file, lenient=lenient),
        plugins=plugins,
        disable_check=document.get("disableCheck", False),
        disable_gc=document.get("disableGC", False),
        load_only_inlined_plugins=document.get("loadOnlyInlinedPlugins", False),
        cni_versions=tuple(dict.fromkeys([*(versions or []), *([version] if version else [])])),
        raw=text.encode(),
        file=file,
        is_list=True,
        warnings=(*_duplicates(found, ""), *(text for plugin in plugins for text in plugin.warnings)),
    )


def _form_of(by_key: Mapping[str, Member], wanted: Form | None, file: str | None, *, lenient: bool) -> Form:
    """Return a document's form; raises ConfigError if Go libcni would read it differently under this file name."""
    # Go libcni chooses the form by the file name. A file that works only here would fail in the other runtimes of the
    # node, so it is refused.
    has_type = "type" in by_key or (lenient and "type" in {key.lower() for key in by_key})
    form: Form = "plugin" if has_type and "plugins" not in by_key else "list"
    if wanted == "plugin" and "plugins" in by_key:
        raise ConfigError("this is a list of plugins", file=file, hint="name the file .conflist")
    if wanted == "list" and form == "plugin":
        raise ConfigError(
            "this is a single plugin configuration", file=file, hint='name the file .conf, or put it into "plugins"'
        )
    return wanted or form


def parse_plugin(text: str) -> PluginConfig:
    """Parse the text of a plugin object from a record, leniently (see ``parse_network``); nothing is logged."""
    return _parse_plugin(text, None, lenient=True)


def read_document(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file of at most 16 MiB; raises ConfigError."""
    try:
        return read_regular(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), _MAX_BYTES)
    except (OSError, UnusableFileError) as error:
        problem = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot be read: {problem}", file=os.fspath(path)) from error


def files_in(directory: str, extensions: tuple[str, ...]) -> list[str]:
    """Return the paths of the files in ``directory`` with one of ``extensions``, sorted bytewise; [] if it is missing.

    A symbolic link counts as a file, as in Go libcni. Raises ConfigError if the directory cannot be read.
    """
    try:
        with os.scandir(directory) as entries:
            names = [
                entry.name
                for entry in entries
                if entry.name.endswith(extensions) and not entry.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=directory) from error
    return [os.path.join(directory, name) for name in sorted(names, key=os.fsencode)]


def read_network(path: str) -> NetworkConfigList:
    """Read one file and its drop-in plugins without logging; raises ConfigError."""
    # A file named ".conf" has no suffix for Python, and has ".conf" for Go (filepath.Ext). The "x" makes both agree.
    ending = os.path.splitext(f"x{os.path.basename(path)}")[1]
    net = parse_network(read_document(path), path, form=_FORMS.get(ending))
    if net.is_list and not net.load_only_inlined_plugins:
        drop_ins = files_in(os.path.join(os.path.dirname(path), net.name), (".conf",))
        net = net.with_plugins(
            replace(_parse_plugin(document_text(read_document(file), file), file), source=file) for file in drop_ins
        )
    if not net.plugins:
        raise ConfigError('no plugins: neither "plugins" nor a drop-in', file=path, location="plugins")
    return net


def _list_of_one(plugin: PluginConfig, file: str | None, *, lenient: bool = False) -> NetworkConfigList:
    if plugin.name is None:
        raise ConfigError('missing "name"', file=file, location="name")
    # The same form as Go (libcni/conf.go, ConfListFromConf), so that both libraries record equal documents.
    text = jsontext.dumps({"name": plugin.name, "cniVersion": plugin.cni_version or DEFAULT_VERSION})
    return NetworkConfigList(
        name=_checked(check_network_name, plugin.name, file, "name"),
        cni_version=_chosen_version(plugin.cni_version, None, file, lenient=lenient),
        plugins=(plugin,),
        cni_versions=(plugin.cni_version,) if plugin.cni_version else (),
        raw=f'{text[:-1]},"plugins":[{plugin.text}]}}'.encode(),
        file=file,
        warnings=plugin.warnings,
    )


def _encode(document: Mapping[str, Any]) -> bytes:
    try:
        return jsontext.dumps(dict(document)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the document has no JSON form: {error}") from error


def _plugins_of(document: Mapping[str, Any], file: str | None, *, lenient: bool) -> tuple[PluginConfig, ...]:
    # Without the key, drop-in files can still add plugins; an empty list is a mistake, as in Go.
    if "plugins" not in document:
        if document.get("loadOnlyInlinedPlugins"):
            raise ConfigError('missing "plugins", and "loadOnlyInlinedPlugins" is true', file=file, location="plugins")
        return ()
    if not document["plugins"]:
        raise ConfigError("the list of plugins is empty", file=file, location="plugins")
    plugins = []
    for index, found in enumerate(document["plugins"]):
        if not isinstance(found, ObjectText):
            problem = f"it is not an object: {short_repr(found)}"
            raise ConfigError(problem, file=file, location=f"plugins[{index}]")
        plugins.append(_plugin_of(found.text, found.members, file, f"plugins[{index}]", lenient=lenient))
    return tuple(plugins)


def _parse_plugin(text: str, file: str | None, *, lenient: bool = False) -> PluginConfig:
    return _plugin_of(text.strip(), split(text, file, ""), file, "", lenient=lenient)


def _plugin_of(text: str, found: list[Member], file: str | None, where: str, *, lenient: bool) -> PluginConfig:
    document = read_plugin_keys({member.key: member for member in found}, file, where, lenient=lenient)
    return PluginConfig(
        type=_checked(check_plugin_type, document["type"], file, format_location(where, ("type",))),
        text=text,
        name=document.get("name"),
        cni_version=document.get("cniVersion"),
        capabilities=tuple(name for name, on in (document.get("capabilities") or {}).items() if on),
        ipam_type=(document.get("ipam") or {}).get("type"),
        warnings=(*_duplicates(found, where), *_replaced(found, where)),
        forwarded=tuple(member for member in found if _is_forwarded(member.key)),
    )


def _is_forwarded(key: str) -> bool:
    return key not in _MADE_BY_RUNTIME and not key.startswith(_RESERVED_PREFIX)


def _duplicates(found: list[Member], where: str) -> list[str]:
    if len({member.key for member in found}) == len(found):
        return []
    times = Counter(member.key for member in found)
    return [
        f"{format_location(where, (key,))}: the key occurs {number} times; the last one counts"
        for key, number in times.items()
        if number > 1
    ]


def _replaced(found: list[Member], where: str) -> list[str]:
    problem = "the runtime sets this key; the document's value is left out"
    return [
        f"{format_location(where, (member.key,))}: {problem}"
        for member in found
        if member.key in {"prevResult", "runtimeConfig"} or member.key.startswith(_RESERVED_PREFIX)
    ]


def _checked(check: Callable[[object], str], name: str, file: str | None, location: str) -> str:
    try:
        return check(name)
    except InvalidIdentifierError as error:
        raise ConfigError(str(error), file=file, location=location) from error


def _chosen_version(version: str | None, versions: list[str] | None, file: str | None, *, lenient: bool = False) -> str:
    try:
        return choose_version(version, versions)
    except VersionError as error:
        if lenient:
            return version or (versions or [DEFAULT_VERSION])[-1]
        location = "cniVersion" if versions is None else "cniVersions"
        raise ConfigError(str(error), file=file, location=location) from error


def _log_warnings(warnings: tuple[str, ...], file: str | None) -> None:
    if not warnings:
        return
    import logging  # few documents have warnings, and this import takes 3 ms

    logger = logging.getLogger("libcni")
    for text in warnings:
        logger.warning("%s: %s", file or "network configuration", text)
