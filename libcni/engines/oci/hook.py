"""Attach a container before its program starts, and detach it after its processes have ended.

A hook can be killed at any moment, run twice, or not at all. So it records its attachments in the record directory, and
its namespaces in the directory of pins. The next hook of the same container, or ``libcni gc --runtime``, completes an
interrupted hook.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import ExitStack
from typing import TYPE_CHECKING

import libcni.kernel.system as system
from libcni._dataclass import replace
from libcni.client import CNIConfig
from libcni.engines.engine_command import environment
from libcni.engines.oci.annotations import PREFIX, Wanted
from libcni.engines.oci.pins import OWNER, Pin, Pins, directory_for, host_namespaces, namespace_of
from libcni.errors import CNIError, ConfigError, Hint, RecordError
from libcni.manager.operation import locked
from libcni.options import DelPolicy
from libcni.store.attachments import in_order
from libcni.store.model import READY

# The manager reads every network's configuration, and a detach needs the records alone.
if TYPE_CHECKING:
    from libcni.engines.oci.container_state import ContainerState
    from libcni.kernel.namespace import NamespaceId
    from libcni.manager import Container, ContainerResult, NetworkManager
    from libcni.observe.observer import Observer

logger: logging.Logger = logging.getLogger("libcni")

_ATTACH_SHARE = 2 / 3
_SHORTEST = 0.001
"""Seconds. The client refuses 0."""
_POLICY = DelPolicy(keep_going=True)


class Hook:
    """Attaches and detaches containers for an OCI runtime.

    Args:
        path: the directories with plugins (CNI_PATH).
        cache_dir: the directory of records and locks.
        conf_dir: the directory of the networks' configurations.
        timeout: seconds for one hook. An attach keeps a third of them for the roll-back.
        resolv_conf: write the networks' name servers to ``resolv.conf`` in the bundle.
        observer: receives the begin and end of every verb and plugin call.
    """

    def __init__(  # noqa: PLR0913 - the options of the command
        self,
        path: str,
        cache_dir: str,
        conf_dir: str,
        *,
        timeout: float = 50.0,
        resolv_conf: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self._path = path
        self._cache_dir = os.path.abspath(cache_dir)
        self._conf_dir = conf_dir
        self._pins = Pins(directory_for(cache_dir))
        self._timeout = timeout
        self._deadline = system.monotonic() + timeout
        self._resolv_conf = resolv_conf
        self._observer = observer

    def attach(self, state: ContainerState, wanted: Wanted) -> None:
        """Attach a container to the networks that it requests. A container that is attached already stays unchanged.

        Raises:
            CNIError: the container cannot be attached. No attachment is left, or a record lets ``detach`` find it.
        """
        identity = _own_namespace(state)
        # Containers of a pod share a namespace. The first one is attached for all of them.
        for pin in self._pins.all():
            if pin.container_id != state.container_id and pin.identity == identity and self._has_networks(pin):
                # With a pin of its own, poststop of either container knows of the other one.
                self._pins.pin(state.container_id, state.pid)
                text = "container %s shares the network namespace of container %s, which has the networks"
                text += ": its own networks and arguments are ignored" if wanted.is_explicit else ""
                level = logging.WARNING if wanted.is_explicit else logging.INFO
                logger.log(level, text, state.container_id, pin.container_id)
                # --install has mounted an empty file over the container's own name servers.
                if self._resolv_conf and (result := _manager(self._client(self._timeout)).container(pin.container_id)):
                    self._write_resolv_conf(result, state.bundle)
                return
        cleanup = self._timeout * (1 - _ATTACH_SHARE) / len(wanted.requests or (1,))
        cni = self._client(cleanup)
        with locked(cni, state.container_id, self._left()):
            manager = _manager(cni)
            container = self._container(manager, state, wanted)
            if _is_attached(manager, container, identity):
                return
            self._clear(cni, container.id, identity, cleanup)
            self._set_up(manager, container, state, identity, cleanup)

    def detach(self, container_id: str) -> None:
        """Detach all recorded attachments of a container. A container without attachments is no error.

        Raises:
            CNIError: an attachment could not be detached; it stays recorded.
        """
        shared = {pin.identity for pin in self._pins.all(container_id)}
        if self._detach(container_id):
            # The last container of a namespace detaches those that ended before it.
            for pin in self._pins.all():
                if pin.container_id != container_id and pin.identity in shared and not pin.is_alive:
                    self._detach(pin.container_id)

    def _detach(self, container_id: str) -> bool:
        """Detach a container, unless something of it still runs; return whether it was detached."""
        cni = self._client(self._timeout)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(cni, container_id, self._left()))
            except RecordError as error:
                # A full or read-only disk must not stop a detach.
                logger.warning("container %s: the detach goes on without the container's lock: %s", container_id, error)
            # A runtime releases the ID before it runs poststop. So the next container of the same ID may be attached
            # already. It is alive, and this hook must not detach it.
            recorded = cni.get_cached_attachments(container_id)
            own = {attachment.record.netns_id for attachment in recorded if attachment.owner == OWNER}
            if user := self._user_of({identity for identity in own if identity is not None}):
                self._remove_pins(cni, container_id)
                logger.warning("container %s stays attached: %s", container_id, user)
                return False
            self._tear_down(cni, container_id, self._left() / max(1, len(recorded)))
            return True

    def _user_of(self, identities: set[NamespaceId]) -> str:
        """Return what still runs in namespaces of a container that has ended; "" if nothing does, or nobody knows.

        The runtime says that the container has ended, so only a process counts here: that of a container which joined
        the namespace. A mount or an open descriptor alone does not keep an address from others.
        """
        pins = self._pins.all()
        for pin in pins:
            if pin.identity in identities and pin.is_alive:
                return f"process {pin.pid} of container {pin.container_id} still runs in the same network namespace"
        if not identities:
            return ""
        from libcni.kernel.life import Life  # not needed for a container without attachments

        life = Life(only_threads=True)
        answers = [life.inhabitant(identity) for identity in identities]
        return next((f"{answer.reason}" for answer in answers if answer.sign == "thread"), "")

    def _left(self) -> float:
        return max(_SHORTEST, self._deadline - system.monotonic())

    def _client(self, timeout: float) -> CNIConfig:
        """Return a client; ``timeout`` is for each DEL of a roll-back."""
        return CNIConfig(
            self._path,
            self._cache_dir,
            conf_dir=self._conf_dir,
            timeout=timeout,
            cleanup_timeout=timeout,
            env=environment(),
            owner=OWNER,
            observer=self._observer,
        )

    def _container(self, manager: NetworkManager, state: ContainerState, wanted: Wanted) -> Container:
        """Return the container with its networks, still without its namespace."""
        from libcni.config.runtime_conf import as_mapping
        from libcni.manager import Container, NetworkRequest

        first, *others = wanted.requests or [NetworkRequest(manager.network().name)]
        capabilities = {**wanted.capabilities, **as_mapping(first.capability_args)}
        requests = [replace(first, capability_args=capabilities), *others]
        return Container(state.container_id, "", requests, wanted.args)

    def _has_networks(self, pin: Pin) -> bool:
        """Return whether a container lives, or its attachments stay because another one uses its namespace."""
        recorded = self._client(self._timeout).get_cached_attachments(pin.container_id)
        return pin.is_alive or any(one.owner == OWNER and one.state == READY for one in recorded)

    def _clear(self, cni: CNIConfig, container_id: str, identity: NamespaceId, seconds: float) -> None:
        """Detach the attachments of an earlier container of this ID, or of a hook that was killed."""
        for pin in self._pins.all(container_id):
            if pin.is_alive and pin.identity != identity:
                raise CNIError(
                    f"a container {container_id} is attached already, and its process {pin.pid} still runs",
                    hint="give the new container another ID: two runtimes of one machine must not share IDs",
                )
        for attachment in cni.get_cached_attachments(container_id):
            if attachment.network and attachment.owner != OWNER:
                raise CNIError(
                    f"container {container_id} is already attached to network {attachment.network} by another program",
                    hint=Hint("detach the container", "del", container_id=container_id),
                )
        try:
            self._tear_down(cni, container_id, seconds)
        except CNIError as error:
            # A mistake in a recorded configuration or annotation stops each DEL that uses it. The ADD that follows
            # detaches such an attachment with the corrected configuration, or fails for the same reason.
            text = "container %s: the earlier container of this ID cannot be detached; the hook goes on: %s"
            logger.warning(text, container_id, error)

    def _set_up(
        self,
        manager: NetworkManager,
        container: Container,
        state: ContainerState,
        identity: NamespaceId,
        cleanup: float,
    ) -> None:
        """Pin the namespace, and attach all networks in it; if anything fails, undo both."""
        pin = self._pins.pin(container.id, state.pid)
        try:
            if pin.identity != identity:  # the process has ended, and a new process has its number
                raise CNIError(f"process {pin.pid} of container {container.id} has ended")
            left = self._left() - self._timeout * (1 - _ATTACH_SHARE)
            # strict: a container that fails is better than a port that is silently not published.
            inside = replace(container, netns=pin.path)
            result = manager.set_up(inside, timeout=max(_SHORTEST, left), strict=True)
            # If the runtime was killed meanwhile, nobody runs poststop, and GC may have detached the container already.
            if not pin.is_alive:
                raise CNIError(
                    f"process {pin.pid} of container {container.id} ended while the container was being attached"
                )
            self._write_resolv_conf(result, state.bundle)
        except CNIError as error:
            try:
                self._tear_down(manager.cni, container.id, cleanup)
            except CNIError as problem:
                error.add_note(f"the roll-back failed: {problem}")
            raise

    def _tear_down(self, cni: CNIConfig, container_id: str, seconds: float) -> None:
        """Detach this hook's attachments of a container, and remove each pin whose namespace has no record any more.

        ``seconds``: the time for each DEL.
        """
        recorded = cni.get_cached_attachments(container_id)
        own = [attachment for attachment in recorded if attachment.owner == OWNER]
        torn = [attachment for attachment in recorded if not attachment.network]
        has_others = len(own) + len(torn) < len(recorded)
        if torn and not has_others:
            # A torn record names no owner. The manager finds whose it is, but it detaches all of the container's.
            _manager(cni).tear_down(container_id, timeout=seconds)
        else:
            cni.del_attachments(reversed(in_order(own)), policy=_POLICY, timeout=seconds)
        self._remove_pins(cni, container_id)

    def _remove_pins(self, cni: CNIConfig, container_id: str) -> None:
        """Remove each pin of a container whose namespace has no record any more."""
        recorded_in = {attachment.netns for attachment in cni.get_cached_attachments(container_id)}
        for pin in self._pins.all(container_id):
            if pin.path not in recorded_in:
                self._pins.remove(pin)

    def _write_resolv_conf(self, result: ContainerResult, bundle: str) -> None:
        text = result.resolv_conf if self._resolv_conf else ""
        if not text:
            return
        if not os.path.isabs(bundle):
            raise ConfigError(
                f"cannot write resolv.conf: the bundle {bundle!r} in the runtime's state is not an absolute path"
            )
        path = os.path.join(bundle, "resolv.conf")
        try:
            # In place: config.json mounts this file, so a new one under its name would not reach the container.
            # O_NOFOLLOW: a symbolic link in the bundle could lead to a file of the host. O_NONBLOCK: the open of a FIFO
            # would wait for a reader.
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(system.open(path, flags, 0o644), "w", encoding="utf-8") as file:
                if not stat.S_ISREG(system.fstat(file.fileno()).st_mode):
                    raise CNIError(f"cannot write {path}: it is not a regular file")
                file.truncate()
                file.write(text)
        except OSError as error:
            raise CNIError(f"cannot write {path}: {error.strerror}") from error


def _manager(cni: CNIConfig) -> NetworkManager:
    from libcni.manager import NetworkManager

    return NetworkManager(cni, policy=_POLICY)


def _is_attached(manager: NetworkManager, container: Container, identity: NamespaceId) -> bool:
    """Return whether the container has exactly the requested attachments, made by an earlier hook."""
    wanted = {(planned.net.name, planned.rt.ifname, READY, OWNER, identity) for planned in manager.plan(container)}
    recorded = manager.cni.get_cached_attachments(container.id)
    return wanted == {
        (attachment.network, attachment.ifname, attachment.state, attachment.owner, attachment.record.netns_id)
        for attachment in recorded
    }


def _own_namespace(state: ContainerState) -> NamespaceId:
    """Return the container's network namespace; refuse one that is not the container's own."""
    if not state.pid:
        raise ConfigError(
            f'the runtime\'s state of container {state.container_id} has the status "{state.status}" and no pid',
            hint="run this hook as createRuntime or prestart, and as poststop",
        )
    identity = namespace_of(state.pid)
    if identity is None:
        problem = "there is no such process" if not system.exists(f"/proc/{state.pid}") else "permission denied"
        process = f"process {state.pid} (container {state.container_id})"
        raise CNIError(f"cannot find the network namespace of {process}: {problem}")
    if identity in host_namespaces():
        raise ConfigError(
            f"container {state.container_id} has no network namespace of its own: "
            "the hook would change the host's network",
            hint=f'add {{"type": "network"}} to linux.namespaces, or the annotation {PREFIX}networks=none',
        )
    return identity
