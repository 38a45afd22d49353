"""A network configuration: parsed and checked, with the original text kept."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from libcni._dataclass import dataclass, field, replace
from libcni.config import jsontext
from libcni.config.identifiers import check_plugin_type, validate_network_name
from libcni.config.jsontext import JSONTextError, Member
from libcni.config.schema import LIST_KEYS, PLUGIN_KEYS, Check, WrongValueError, check_keys, format_location
from libcni.config.versions import DEFAULT_VERSION, choose_version
from libcni.errors import ConfigError, InvalidIdentifierError, VersionError, short_repr
from libcni.kernel.regular_file import UnusableFileError, read_regular

__all__ = ["NetworkConfigList", "PluginConfig", "inject_conf"]

Form = Literal["list", "plugin"]
"""The form of a document: a configuration list, or a single plugin configuration."""

_FORMS: dict[str, Form] = {".conflist": "list", ".conf": "plugin", ".json": "plugin"}
_MAX_BYTES = 16 << 20
MAX_CONFIG_ELEMENTS = 100_000
"""The number of elements that the lists and objects of a configuration may have together."""
# Keys of a plugin object that the runtime writes itself (spec 1.1.0, section 3, Deriving execution configuration).
_MADE_BY_RUNTIME = {"name", "cniVersion", "runtimeConfig", "prevResult", "capabilities"}
# Reserved for the runtime, and removed: a document could forge the list of valid attachments that GC sends.
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
        forwarded_text: the members that the plugin receives unchanged, as text without braces; computed from ``text``.

    Examples:
        >>> PluginConfig.from_dict({"type": "bridge", "ipam": {"type": "host-local"}}).ipam_type
        'host-local'
    """

    type: str
    text: str
    name: str | None = None
    cni_version: str | None = None
    capabilities: tuple[str, ...] = ()
    ipam_type: str | None = None
    source: str | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)
    # Computed once for each document and not for each call: DEL, CHECK and retries of a chain use it again.
    forwarded_text: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the members that the plugin receives, if this object was created in code."""
        if not self.forwarded_text:
            object.__setattr__(self, "forwarded_text", _forwarded(_Reader().members(self.text)))

    @classmethod
    def from_bytes(cls, data: bytes | str, *, file: str | None = None) -> PluginConfig:
        """Read a single plugin configuration, a ``.conf`` document.

        Raises:
            ConfigError: the document is invalid; the error names ``file`` and the location.
        """
        plugin = _Reader(file).plugin_document(data)
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
        """Return the plugin configuration for decoded JSON.

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
        is_list: False if the document was a single plugin configuration.
        warnings: probable mistakes in the document.

    Examples:
        >>> net = NetworkConfigList.from_dict({"cniVersion": "1.1.0", "name": "dbnet", "plugins": [{"type": "bridge"}]})
        >>> net.name, [plugin.type for plugin in net.plugins]
        ('dbnet', ['bridge'])
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
        """Read a list, or a single plugin configuration as a list with one plugin. Drop-ins are not read.

        Raises:
            ConfigError: the document is invalid; the error names ``file`` and the location.
        """
        net = _Reader(file).network(data)
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
    def from_dict(cls, document: Mapping[str, Any], *, file: str | None = None) -> NetworkConfigList:
        """Return the list for decoded JSON.

        Raises:
            ConfigError: as for ``from_bytes``, or a value has no JSON form.
        """
        return cls.from_bytes(_encode(document, file), file=file)

    @classmethod
    def from_plugin(cls, plugin: PluginConfig, *, file: str | None = None) -> NetworkConfigList:
        """Turn a single plugin configuration into a list with one plugin, with the plugin's own name and version.

        Raises:
            ConfigError: the name is missing or invalid, or the version is unknown.
        """
        return _Reader(file).list_of_one(_checked(plugin))

    def with_version(self, version: str) -> NetworkConfigList:
        """Return a copy of this list with another spec version."""
        return self if version == self.cni_version else replace(self, cni_version=version)

    def with_plugins(self, plugins: Iterable[PluginConfig]) -> NetworkConfigList:
        """Return a copy of this list with ``plugins`` in place of its own, for example after ``inject_conf``."""
        return replace(self, plugins=tuple(map(_checked, plugins)))

    def with_appended_plugins(self, plugins: Iterable[PluginConfig]) -> NetworkConfigList:
        """Return a copy of this list with ``plugins`` after its own, for example drop-ins."""
        more = tuple(map(_checked, plugins))
        warnings = self.warnings + tuple(text for plugin in more for text in plugin.warnings)
        return replace(self, plugins=self.plugins + more, warnings=warnings) if more else self

    def unused_capabilities(self, capability_args: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in ``capability_args`` that no plugin of this list declares."""
        declared = {name for plugin in self.plugins for name in plugin.capabilities}
        return tuple(name for name in capability_args if name not in declared)

    def log_warnings(self) -> None:
        """Log ``warnings`` to the logger ``libcni``."""
        _log_warnings(self.warnings, self.file)


def _checked(plugin: PluginConfig) -> PluginConfig:
    if not isinstance(plugin, PluginConfig):
        raise TypeError(f"each plugin must be a PluginConfig, not {type(plugin).__name__}; use PluginConfig.from_dict")
    return plugin


def inject_conf(plugin: PluginConfig, values: Mapping[str, Any]) -> PluginConfig:
    """Return a copy of a plugin configuration with some keys set, as Go's ``InjectConf`` does.

    Other keys keep their order and their text. Put the copy back with ``NetworkConfigList.with_plugins``.

    Args:
        plugin: the configuration.
        values: the values by key; a key that exists is replaced.

    Raises:
        ConfigError: a key is empty or a value is None, a value has no JSON form, or the new configuration is invalid.

    Examples:
        >>> plugin = PluginConfig.from_dict({"type": "bridge", "mtu": 1500})
        >>> inject_conf(plugin, {"mtu": 9000}).text
        '{"type":"bridge","mtu":9000}'
    """
    for key, value in values.items():
        if not key:
            raise ConfigError(f"a key to set is {short_repr(key)}: it must not be empty")
        if value is None:
            raise ConfigError(f'the key "{key}" has the value None: give a value', location=key)
    members = _Reader().members(_checked(plugin).text)
    new = {key: _value_text(key, value) for key, value in values.items()}
    parts = [f"{member.key_text}:{new.get(member.key, member.text)}" for member in members]
    present = {member.key for member in members}
    parts += [f"{jsontext.quote(key)}:{text}" for key, text in new.items() if key not in present]
    return PluginConfig.from_bytes("{" + ",".join(parts) + "}")


def _value_text(key: str, value: Any) -> str:
    try:
        return jsontext.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"it has no JSON form: {error}", location=key) from error


def check_plugins(net: NetworkConfigList) -> None:
    """Raise ConfigError if a network has no plugins: a verb would do nothing, and report success."""
    if not net.plugins:
        problem = f'network "{net.name}" has no plugins: add "plugins", or a drop-in file'
        raise ConfigError(problem, file=net.file, location="plugins")


def parse_recorded(data: bytes | str, file: str | None = None) -> NetworkConfigList:
    """Parse a record's configuration as leniently as Go libcni, without logging. Raises ConfigError."""
    return _Reader(file, is_lenient=True).network(data)


def parse_plugin(text: str) -> PluginConfig:
    """Parse the text of a plugin object from a record, as ``parse_recorded`` does."""
    return _Reader(is_lenient=True).plugin_document(text)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A reader of one document. Its methods raise ConfigError.

    Attributes:
        file: the document's path, for errors.
        is_lenient: the document is from a record, and DEL must be able to run, so accept all that Go libcni accepts:
            any number of elements and levels, bytes that are not UTF-8, keys in any case and unknown versions. Values
            of the wrong type are left out.
    """

    file: str | None = None
    is_lenient: bool = False

    def network(self, data: bytes | str, form: Form | None = None) -> NetworkConfigList:
        """Read a list, or a single plugin as a list with one plugin.

        ``form``: the document's required form; None: any.
        """
        text = self._text(data)
        members = self.members(text)
        if self._form(members, form) == "plugin":
            return self.list_of_one(self._plugin(text.strip(), members))
        values = self._values(members, LIST_KEYS, "name")
        plugins = self._plugins(members, values)
        version, versions = values.get("cniVersion", ""), values.get("cniVersions")
        return NetworkConfigList(
            name=self._name(validate_network_name, values["name"], "name"),
            cni_version=self._version(version, versions),
            plugins=plugins,
            disable_check=values.get("disableCheck", False),
            disable_gc=values.get("disableGC", False),
            load_only_inlined_plugins=values.get("loadOnlyInlinedPlugins", False),
            cni_versions=tuple(dict.fromkeys([*(versions or []), *([version] if version else [])])),
            raw=text.encode(),
            file=self.file,
            is_list=True,
            warnings=(*_duplicates(members, ""), *(text for plugin in plugins for text in plugin.warnings)),
        )

    def plugin_document(self, data: bytes | str) -> PluginConfig:
        """Read a single plugin configuration."""
        text = self._text(data)
        return self._plugin(text.strip(), self.members(text))

    def list_of_one(self, plugin: PluginConfig) -> NetworkConfigList:
        """Return the network that has only this plugin."""
        if plugin.name is None:
            raise self._error('missing "name"', "name")
        # The same form as Go (libcni/conf.go, ConfListFromConf), so that both libraries record equal documents.
        text = jsontext.dumps({"name": plugin.name, "cniVersion": plugin.cni_version or DEFAULT_VERSION})
        return NetworkConfigList(
            name=self._name(validate_network_name, plugin.name, "name"),
            cni_version=self._version(plugin.cni_version),
            plugins=(plugin,),
            cni_versions=(plugin.cni_version,) if plugin.cni_version else (),
            raw=f'{text[:-1]},"plugins":[{plugin.text}]}}'.encode(),
            file=self.file,
            warnings=plugin.warnings,
        )

    def members(self, text: str, where: str = "") -> list[Member]:
        """Return the members of the object ``text`` at ``where`` in the document."""
        try:
            members = jsontext.members(text)
        except JSONTextError as error:
            raise self._error(error.problem, where or error.location, error.hint) from error
        if not self.is_lenient:
            return members
        present = {member.key for member in members}
        names = {key.lower(): key for key in (*LIST_KEYS, *PLUGIN_KEYS) if key not in present}
        return [member._replace(key=names.get(member.key.lower(), member.key)) for member in members]

    def _text(self, data: bytes | str) -> str:
        try:
            if self.is_lenient:
                return jsontext.decode_utf8(data if isinstance(data, str) else data.decode(errors="replace"))
            return jsontext.check_size(jsontext.decode_utf8(data), MAX_CONFIG_ELEMENTS)
        except JSONTextError as error:
            raise self._error(error.problem, error.location, error.hint) from error

    def _form(self, members: list[Member], expected_form: Form | None) -> Form:
        """Return a document's form; raises ConfigError if Go libcni would read it differently under this file name."""
        # Go libcni chooses the form by the file name. A file that works only here would fail in the other runtimes of
        # the node, so it is refused.
        keys = {member.key for member in members}
        form: Form = "plugin" if "type" in keys and "plugins" not in keys else "list"
        if expected_form == "plugin" and "plugins" in keys:
            raise self._error('the file has a list of plugins ("plugins")', hint="rename the file to .conflist")
        if expected_form == "list" and form == "plugin":
            hint = 'rename the file to .conf, or move the plugin into a list "plugins"'
            raise self._error("the file has a single plugin's configuration", hint=hint)
        return expected_form or form

    def _plugins(self, members: list[Member], values: Mapping[str, Any]) -> tuple[PluginConfig, ...]:
        # Without the key, drop-in files can still add plugins; an empty list is a mistake, as in Go.
        if "plugins" not in values:
            if values.get("loadOnlyInlinedPlugins"):
                raise self._error('missing "plugins", and "loadOnlyInlinedPlugins" is true', "plugins")
            return ()
        if not values["plugins"]:
            raise self._error("the list of plugins is empty", "plugins")
        (text,) = [member.text for member in members if member.key == "plugins"][-1:]
        return tuple(
            self._plugin(element, self.members(element, where), where)
            for index, element in enumerate(jsontext.elements(text))
            if (where := f"plugins[{index}]")
        )

    def _plugin(self, text: str, members: list[Member], where: str = "") -> PluginConfig:
        values = self._values(members, PLUGIN_KEYS, "type", where)
        return PluginConfig(
            type=self._name(check_plugin_type, values["type"], format_location(where, ("type",))),
            text=text,
            name=values.get("name"),
            cni_version=values.get("cniVersion"),
            capabilities=tuple(name for name, on in (values.get("capabilities") or {}).items() if on),
            ipam_type=(values.get("ipam") or {}).get("type"),
            warnings=(*_duplicates(members, where), *_replaced(members, where)),
            forwarded_text=_forwarded(members),
        )

    def _values(
        self, members: list[Member], checks: Mapping[str, Check], required: str, where: str = ""
    ) -> dict[str, Any]:
        """Return the values of the keys in ``checks`` (spec 1.1.0, section 1). The last value of a key counts."""
        values = {member.key: member.value for member in members if member.key in checks}
        if self.is_lenient:
            values = {key: value for key, value in values.items() if key == required or _passes(checks[key], value)}
        try:
            return check_keys(values, checks, required)
        except WrongValueError as error:
            # Go accepts "Name" for "name", so such a file may have worked with another runtime.
            similar = [member.key for member in members if required not in values and member.key.lower() == required]
            hint = f'there is "{similar[0]}", but keys are case-sensitive' if similar else None
            raise self._error(error.problem, format_location(where, error.path), hint) from None

    def _name(self, check: Callable[[object], str], name: str, location: str) -> str:
        try:
            return check(name)
        except InvalidIdentifierError as error:
            raise self._error(str(error), location) from error

    def _version(self, version: str | None, versions: list[str] | None = None) -> str:
        try:
            return choose_version(version, versions)
        except VersionError as error:
            if self.is_lenient:
                return version or (versions or [DEFAULT_VERSION])[-1]
            raise self._error(str(error), "cniVersion" if versions is None else "cniVersions") from error

    def _error(self, problem: str, location: str | None = None, hint: str | None = None) -> ConfigError:
        return ConfigError(problem, file=self.file, location=location or None, hint=hint)


def _passes(check: Check, value: Any) -> bool:
    try:
        check(value)
    except WrongValueError:
        return False
    return True


def read_document(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file of at most 16 MiB; raises ConfigError."""
    try:
        return read_regular(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), _MAX_BYTES)
    except (OSError, UnusableFileError) as error:
        problem = getattr(error, "strerror", None) or error
        if isinstance(error, FileNotFoundError) and os.path.islink(path):
            problem = f"it is a symbolic link to {os.readlink(path)}, which does not exist"
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
    net = _Reader(path).network(read_document(path), _FORMS.get(ending))
    if net.is_list and not net.load_only_inlined_plugins:
        drop_ins = files_in(os.path.join(os.path.dirname(path), net.name), (".conf",))
        net = net.with_appended_plugins(
            replace(_Reader(file).plugin_document(read_document(file)), source=file) for file in drop_ins
        )
    check_plugins(net)
    return net


def _encode(document: Mapping[str, Any], file: str | None = None) -> bytes:
    try:
        return jsontext.dumps(dict(document)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the document has no JSON form: {error}", file=file) from error


def _forwarded(members: list[Member]) -> str:
    """Return the members that a plugin receives unchanged, as text."""
    return ",".join(
        f"{member.key_text}:{member.text}"
        for member in members
        if member.key not in _MADE_BY_RUNTIME and not member.key.startswith(_RESERVED_PREFIX)
    )


def _duplicates(members: list[Member], where: str) -> list[str]:
    if len({member.key for member in members}) == len(members):
        return []
    times = Counter(member.key for member in members)
    return [
        f"{format_location(where, (key,))}: the key occurs {number} times; the last value is used"
        for key, number in times.items()
        if number > 1
    ]


def _replaced(members: list[Member], where: str) -> list[str]:
    problem = "the runtime sets this key; the document's value is ignored"
    return [
        f"{format_location(where, (member.key,))}: {problem}"
        for member in members
        if member.key in {"prevResult", "runtimeConfig"} or member.key.startswith(_RESERVED_PREFIX)
    ]


def _log_warnings(warnings: tuple[str, ...], file: str | None) -> None:
    if not warnings:
        return
    import logging  # few documents have warnings, and this import takes 3 ms

    logger = logging.getLogger("libcni")
    for text in warnings:
        logger.warning("%s: %s", file or "network configuration", text)


def plugin_documents(net: NetworkConfigList | None) -> list[Mapping[str, Any]]:
    """Return a network's decoded plugin configurations. Their values may have any type: the plugins check them."""
    return [jsontext.parse(plugin.text) for plugin in net.plugins] if net is not None else []
