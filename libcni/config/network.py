"""One network configuration document: parsed, checked, and kept as the text that it was."""

from __future__ import annotations

import logging
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from libcni.config import jsontext
from libcni.config.identifiers import check_network_name, check_plugin_type
from libcni.config.jsontext import Member
from libcni.config.schema import ListDocument, PluginDocument, decode, format_location, split, validate
from libcni.config.versions import DEFAULT_VERSION, choose_version
from libcni.errors import ConfigError, InvalidIdentifierError, VersionError

__all__ = ["NetworkConfigList", "PluginConfig", "inject_conf"]

logger: logging.Logger = logging.getLogger("libcni")

_FORMS = {".conflist": "list", ".conf": "plugin", ".json": "plugin"}
_MADE_BY_RUNTIME = {"name", "cniVersion", "runtimeConfig", "prevResult", "capabilities"}
_RESERVED_PREFIX = "cni.dev/"


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """One plugin's configuration: an element of ``plugins``, a drop-in file, or a document of its own.

    Attributes:
        type: the plugin's type, which is its executable's file name.
        text: the JSON object as it stands in the document.
        name: as in the object, or None. In a list, the list's is used.
        cni_version: likewise.
        capabilities: the capabilities that it declares as true, in their order.
        ipam_type: the type of the IPAM plugin that it delegates to, or None.
        source: the file that it comes from where that is not the list's (a drop-in), or None.
        warnings: what was found that is probably not meant.
        passed_on: the object's members that plugins get as they stand, worked out from ``text``.
        passed_text: the same as text.
    """

    type: str
    text: str
    name: str | None = None
    cni_version: str | None = None
    capabilities: tuple[str, ...] = ()
    ipam_type: str | None = None
    source: str | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)
    passed_on: tuple[Member, ...] = field(default=(), repr=False, compare=False)
    passed_text: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out what plugins get of it, also where it was put together in code."""
        passed_on = self.passed_on or tuple(one for one in split(self.text, None, "") if _is_passed_on(one.key))
        object.__setattr__(self, "passed_on", passed_on)
        text = ",".join(f"{member.key_text}:{member.text}" for member in passed_on)
        object.__setattr__(self, "passed_text", text)

    @classmethod
    def from_bytes(cls, data: bytes | str, *, file: str | None = None) -> PluginConfig:
        """Read a single plugin configuration, a ``.conf`` document.

        Raises:
            ConfigError: it is not one; the error names ``file`` and the place.
        """
        plugin = _parse_plugin(decode(data, file), file, "")
        _log_warnings(plugin.warnings, file)
        return plugin

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PluginConfig:
        """Read a ``.conf`` file.

        Raises:
            ConfigError: as ``from_bytes`` does; also a file that cannot be read.
        """
        return cls.from_bytes(read_document(path), file=os.fspath(path))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> PluginConfig:
        """Make a plugin configuration from decoded JSON.

        Raises:
            ConfigError: as ``from_bytes`` does; also what JSON has no form for.
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
        disable_gc: whether GC does.
        load_only_inlined_plugins: whether drop-ins are left alone.
        cni_versions: all versions that the document names.
        raw: the document as it was read.
        file: the path that it was read from, or None.
        is_list: False where it was made of a single plugin configuration.
        warnings: what was found that is probably not meant.
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
        """Read a list; a single plugin configuration is turned into a list of one. No drop-ins are looked for.

        Raises:
            ConfigError: the document is wrong; the error names ``file`` and the place.
        """
        net = parse_network(data, file)
        net.log_warnings()
        return net

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> NetworkConfigList:
        """Read a ``.conflist``, ``.conf`` or ``.json`` file, and its drop-in plugins ``<dir>/<name>/*.conf``.

        Raises:
            ConfigError: as ``from_bytes`` does; also a file that cannot be read, a bad drop-in, no plugin at all,
                or a content that does not go with the file's ending.
        """
        net = read_network(os.fspath(path))
        net.log_warnings()
        return net

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> NetworkConfigList:
        """Make a list from decoded JSON.

        Raises:
            ConfigError: as ``from_bytes`` does; also what JSON has no form for.
        """
        return cls.from_bytes(_encode(document))

    @classmethod
    def from_plugin(cls, plugin: PluginConfig, *, file: str | None = None) -> NetworkConfigList:
        """Turn a single plugin configuration into a list of one, with its own name and version.

        Raises:
            ConfigError: it has no name or a bad one, or a version that is not known.
        """
        return _list_of_one(plugin, file)

    def with_version(self, version: str) -> NetworkConfigList:
        """Return this list as used at another spec version."""
        return self if version == self.cni_version else replace(self, cni_version=version)

    def with_plugins(self, plugins: Iterable[PluginConfig]) -> NetworkConfigList:
        """Return this list with ``plugins`` appended, such as drop-ins."""
        more = tuple(plugins)
        warnings = self.warnings + tuple(text for plugin in more for text in plugin.warnings)
        return replace(self, plugins=self.plugins + more, warnings=warnings) if more else self

    def unused_capabilities(self, capability_args: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in ``capability_args`` that no plugin of this list declares."""
        taken = {name for plugin in self.plugins for name in plugin.capabilities}
        return tuple(name for name in capability_args if name not in taken)

    def log_warnings(self) -> None:
        """Log ``warnings`` to the logger ``libcni``."""
        _log_warnings(self.warnings, self.file)


def inject_conf(plugin: PluginConfig, values: Mapping[str, Any]) -> PluginConfig:
    """Return a plugin configuration with top-level keys set to other values; the rest stays as it is written.

    Raises:
        ConfigError: an empty key, a value of None or one that JSON cannot carry, or a result that is no configuration.
    """
    for key, value in values.items():
        if not key or value is None:
            raise ConfigError("an injected key must not be empty, nor its value None", location=repr(key))
    new = {key: jsontext.dumps(value) for key, value in _plain(values).items()}
    own = jsontext.members(plugin.text)
    parts = [(member.key_text, new.get(member.key, member.text)) for member in own]
    parts += [(jsontext.dumps(key), text) for key, text in new.items() if key not in {member.key for member in own}]
    text = decode(jsontext.join_object(parts), plugin.source)
    return replace(_parse_plugin(text, plugin.source, ""), source=plugin.source)


def parse_network(
    data: bytes | str, file: str | None = None, *, form: str | None = None, lenient: bool = False
) -> NetworkConfigList:
    """Parse a document without logging.

    Args:
        data: the document.
        file: where it comes from, for errors.
        form: ``list`` or ``plugin``: what it has to be; None: either.
        lenient: accept any version, for what a record holds.
    """
    text = decode(data, file, lenient=lenient)
    found = split(text, file, "")
    by_key = {member.key: member for member in found}
    if _form_of(by_key, form, file) == "plugin":
        return _list_of_one(_parse_plugin(text, file, ""), file, lenient=lenient)
    document = validate(ListDocument, by_key, file, "")
    plugins = _parse_plugins(document, by_key, file)
    return NetworkConfigList(
        name=_checked_name(document.name, file),
        cni_version=_chosen_version(document.cniVersion, document.cniVersions, file, lenient=lenient),
        plugins=plugins,
        disable_check=document.disableCheck,
        disable_gc=document.disableGC,
        load_only_inlined_plugins=document.loadOnlyInlinedPlugins,
        cni_versions=_declared_versions(document),
        raw=text.encode(),
        file=file,
        is_list=True,
        warnings=(*_duplicates(found, ""), *(text for plugin in plugins for text in plugin.warnings)),
    )


def _form_of(by_key: Mapping[str, Member], wanted: str | None, file: str | None) -> str:
    """Return what a document is, and refuse one that other runtimes would read otherwise under this ending."""
    form = "plugin" if "type" in by_key and "plugins" not in by_key else "list"
    if wanted == "plugin" and "plugins" in by_key:
        raise ConfigError("this is a list of plugins", file=file, hint="name the file .conflist")
    if wanted == "list" and form == "plugin":
        raise ConfigError(
            "this is a single plugin configuration", file=file, hint='name the file .conf, or put it into "plugins"'
        )
    return wanted or form


def parse_plugin(text: str) -> PluginConfig:
    """Parse the text of a plugin object that was accepted before, such as one in a record; nothing is logged."""
    return _parse_plugin(text, None, "")


def read_document(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a configuration file; raises ConfigError if it cannot be read."""
    name = os.fspath(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a pipe would hold up everybody, /dev/zero has no end
                raise ConfigError("cannot be read: not a regular file", file=name)
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=name) from error


def files_in(directory: str, extensions: tuple[str, ...]) -> list[str]:
    """Return the paths of the files in ``directory`` with one of ``extensions``, sorted bytewise; [] if it is missing.

    A symbolic link counts as a file. Raises ConfigError where the directory cannot be read.
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
    ending = os.path.splitext(f"x{os.path.basename(path)}")[1]
    net = parse_network(read_document(path), path, form=_FORMS.get(ending))
    if net.is_list and not net.load_only_inlined_plugins:
        net = net.with_plugins(_read_drop_in(file) for file in _drop_in_files(path, net.name))
    if not net.plugins:
        raise ConfigError('no plugins: neither "plugins" nor a drop-in', file=path, location="plugins")
    return net


def _drop_in_files(path: str, network: str) -> list[str]:
    return files_in(os.path.join(os.path.dirname(path), network), (".conf",))


def _read_drop_in(path: str) -> PluginConfig:
    return replace(_parse_plugin(decode(read_document(path), path), path, ""), source=path)


def _list_of_one(plugin: PluginConfig, file: str | None, *, lenient: bool = False) -> NetworkConfigList:
    if plugin.name is None:
        raise ConfigError('missing "name"', file=file, location="name")
    text = jsontext.dumps({"name": plugin.name, "cniVersion": plugin.cni_version or DEFAULT_VERSION})
    return NetworkConfigList(
        name=_checked_name(plugin.name, file),
        cni_version=_chosen_version(plugin.cni_version, None, file, lenient=lenient),
        plugins=(plugin,),
        cni_versions=(plugin.cni_version,) if plugin.cni_version else (),
        raw=f'{text[:-1]},"plugins":[{plugin.text}]}}'.encode(),
        file=file,
        warnings=plugin.warnings,
    )


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = jsontext.parse(_encode(document).decode())
    return plain


def _encode(document: Mapping[str, Any]) -> bytes:
    try:
        return jsontext.dumps(dict(document)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the document has no JSON form: {error}") from error


def _parse_plugins(document: ListDocument, by_key: Mapping[str, Member], file: str | None) -> tuple[PluginConfig, ...]:
    if "plugins" not in by_key:
        if document.loadOnlyInlinedPlugins:
            raise ConfigError('missing "plugins", and "loadOnlyInlinedPlugins" is true', file=file, location="plugins")
        return ()
    if not document.plugins:
        raise ConfigError("the list of plugins is empty", file=file, location="plugins")
    found = jsontext.elements(by_key["plugins"].text)
    return tuple(_parse_plugin(element.text, file, f"plugins[{index}]") for index, element in enumerate(found))


def _parse_plugin(text: str, file: str | None, where: str) -> PluginConfig:
    found = split(text, file, where)
    by_key = {member.key: member for member in found}
    document = validate(PluginDocument, by_key, file, where)
    try:
        check_plugin_type(document.type)
    except InvalidIdentifierError as error:
        raise ConfigError(str(error), file=file, location=format_location(where, ("type",))) from error
    return PluginConfig(
        type=document.type,
        text=text.strip(),
        name=document.name,
        cni_version=document.cniVersion,
        capabilities=tuple(name for name, on in (document.capabilities or {}).items() if on),
        ipam_type=document.ipam.type if document.ipam else None,
        warnings=(*_duplicates(found, where), *_replaced(found, where)),
        passed_on=tuple(member for member in found if _is_passed_on(member.key)),
    )


def _is_passed_on(key: str) -> bool:
    return key not in _MADE_BY_RUNTIME and not key.startswith(_RESERVED_PREFIX)


def _duplicates(found: list[Member], where: str) -> list[str]:
    times = Counter(member.key for member in found)
    return [
        f"{format_location(where, (key,))}: it stands {number} times; the last one counts"
        for key, number in times.items()
        if number > 1
    ]


def _replaced(found: list[Member], where: str) -> list[str]:
    made = [member.key for member in found if member.key in {"prevResult", "runtimeConfig"}]
    made += [member.key for member in found if member.key.startswith(_RESERVED_PREFIX)]
    return [f"{format_location(where, (key,))}: the runtime makes this; what the file says is left out" for key in made]


def _checked_name(name: str, file: str | None) -> str:
    try:
        return check_network_name(name)
    except InvalidIdentifierError as error:
        raise ConfigError(str(error), file=file, location="name") from error


def _chosen_version(version: str | None, versions: list[str] | None, file: str | None, *, lenient: bool = False) -> str:
    try:
        return choose_version(version, versions)
    except VersionError as error:
        if lenient:
            return version or (versions or [DEFAULT_VERSION])[-1]
        location = "cniVersion" if versions is None else "cniVersions"
        raise ConfigError(str(error), file=file, location=location) from error


def _declared_versions(document: ListDocument) -> tuple[str, ...]:
    named = [*(document.cniVersions or []), *([document.cniVersion] if document.cniVersion else [])]
    return tuple(dict.fromkeys(named))


def _log_warnings(warnings: tuple[str, ...], file: str | None) -> None:
    for text in warnings:
        logger.warning("%s: %s", file or "network configuration", text)
