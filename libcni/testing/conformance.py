"""Check a plugin against the specification: every verb in every version, invalid calls, and the state it leaves."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from types import MappingProxyType
from typing import Any

from libcni.config.versions import ALL_VERSIONS
from libcni.testing.attachment_checks import check_attachment
from libcni.testing.calling import Target
from libcni.testing.examination import Examination, TooSlowError
from libcni.testing.failed_add_checks import check_failed_adds
from libcni.testing.ipam_checks import check_addresses
from libcni.testing.ipam_recorder import recording_ipam
from libcni.testing.many_checks import check_many
from libcni.testing.namespaces import NetworkNamespace
from libcni.testing.refusal_checks import check_invalid_calls, check_version_verb
from libcni.testing.report import ConformanceFinding, ConformanceReport
from libcni.testing.surroundings import own_host, surroundings_of

GROUPS: Mapping[str, Callable[[Examination], None]] = {
    "refusals": check_invalid_calls, "life": check_attachment, "several": check_many, "addresses": check_addresses,
    "failures": check_failed_adds,
}  # fmt: skip

__all__ = ["ConformanceFinding", "ConformanceReport", "assert_plugin_conforms", "check_plugin"]


def assert_plugin_conforms(plugin: Target, config: Mapping[str, Any], **options: Any) -> ConformanceReport:
    """Run ``check_plugin``, raise if a check fails, and return the report otherwise.

    Args:
        plugin: a Plugin or the path of an executable.
        config: see ``check_plugin``.
        options: the keyword arguments of ``check_plugin``.

    Raises:
        AssertionError: if a check fails; the text lists all failed checks.
    """
    report = check_plugin(plugin, config, **options)
    if report.failures:
        raise AssertionError(str(report))
    for note in report.notes:
        warnings.warn(note, stacklevel=2)  # pytest shows it
    return report


def check_plugin(  # noqa: PLR0913 - a plugin's surroundings
    plugin: Target,
    config: Mapping[str, Any],
    *,
    namespace: NetworkNamespace | None = None,
    path: str = "/opt/cni/bin",
    prev_result: Mapping[str, Any] | None = None,
    ipam: bool = False,
    args: str = "",
    versions: Sequence[str] = ALL_VERSIONS,
    keeps_state: bool | None = None,
    timeout: float = 30.0,
    known: Mapping[str, str] = MappingProxyType({}),
    surroundings: Callable[[], AbstractContextManager[NetworkNamespace]] | None = None,
    only: Collection[str] = tuple(GROUPS),
) -> ConformanceReport:
    """Run every verb of a plugin in every version, and compare answers and state with the specification.

    The containers do not exist and the interface is ``cnitest0``. The plugin must take down everything that it makes.
    A call that hangs ends the check. The report has the findings until then. With a namespace the calls are made in a
    network namespace that stands for the host, unless the configuration names a link of this host.

    Args:
        plugin: a Plugin, which is called in this process, or the path of an executable. Only an executable can be
            called several times at once.
        config: a configuration with which its ADD succeeds; ``cniVersion``, ``name`` and ``prevResult`` are added. A
            random suffix is added to ``name``: GC must not free the addresses of a network that this machine uses. If
            there is an ``ipam.type``, the helper also checks that every verb is forwarded to that plugin.
        namespace: a namespace for a plugin that needs one. Its links, addresses, routes and rules must be the same
            after DEL; those of the host must not grow with each attachment.
        path: CNI_PATH, for plugins that delegate.
        prev_result: for a chained plugin the result of the previous one, as spec 1.1.0 writes it.
        ipam: whether it is an IPAM plugin, whose results have no interfaces.
        args: CNI_ARGS.
        versions: the versions to check, of those that the plugin supports.
        keeps_state: whether CHECK must fail after DEL and after GC. None: only if the helper sees state: allocated
            addresses, an interface, or another change of the host or the namespace.
        known: checks that the plugin is known to fail, with the reasons, such as ``{"VERSION echoes cniVersion": "Go's
            skel"}``. They are reported, but do not count as failures. A known check that passes counts as a failure.
        surroundings: makes a context for each version; the context gives the namespace, in place of ``namespace``, and
            may make links on the host. The host is a namespace of its own then, and the ``sandbox`` of ``prev_result``
            becomes the new namespace. Without ``surroundings``, a chained plugin with a ``namespace`` gets a new
            namespace for each version, with the interfaces, addresses and routes of ``prev_result``.
        only: the groups of checks to run, while you correct a failure: ``refusals`` (wrong calls), ``life`` (one
            attachment, in each version), ``several`` (attachments), ``addresses``
            (of an IPAM plugin), ``failures`` (ADDs that fail).
        timeout: seconds for each call of an executable. A Plugin is called in this thread, which nothing can stop.

    Raises:
        ValueError: ``prev_result`` is no result, or one of ``versions`` cannot express it: before 0.3.0 a result needs
            an address. ``only`` or ``versions`` is empty or has an unknown word. Nothing can be examined: the
            executable cannot be started, supports none of ``versions``, or needs a namespace and ``namespace`` is None.
            No ADD has succeeded, although no check has failed: the report would be green without an examination.
    """
    _check_words("group of checks", only, GROUPS)
    _check_words("version of the specification", versions, ALL_VERSIONS)
    examination = Examination(
        plugin, dict(config), namespace, prev_result, path, args, ipam=ipam, keeps_state=keeps_state, timeout=timeout,
        surroundings=surroundings,
    )  # fmt: skip
    report = examination.report
    # A stack keeps the recorder until the last call, even if the check ends early.
    with ExitStack() as stack:
        try:
            stack.enter_context(own_host(examination))
            supported = check_version_verb(examination)
            report.versions = tuple(version for version in supported if version in versions)
            if report.versions:
                examination.recorder = stack.enter_context(recording_ipam(examination))
            for group in [group for group in GROUPS if group in only] if report.versions else ():
                # In the newest version only: the other groups make many calls.
                for examination.version in report.versions if group == "life" else report.versions[-1:]:
                    with nullcontext() if group == "failures" else surroundings_of(examination):
                        GROUPS[group](examination)
                    if examination.lacks_namespace:
                        hint = "pass namespace= (--namespace) for a plugin that enters the namespace"
                        raise ValueError(f"ADD needs a namespace that exists: {examination.refused}; {hint}")
            slow = ""
        except TooSlowError as error:
            slow = str(error)
        else:
            _check_examined(examination, supported, versions, only, known)
        examination.version = ""
        with suppress(FileNotFoundError):
            os.unlink(examination.missing_netns)  # a plugin that creates it has its finding
        examination.add_finding("every call is answered in time", slow)
        examination.report_observations()
        report.apply_known(known)
    return report


def _check_words(kind: str, given: Collection[str], words: Collection[str]) -> None:
    unknown = [word for word in given if word not in words]
    if unknown or not given:
        mistake = f"there is no {kind} {', '.join(unknown)}" if unknown else f"no {kind} is given"
        raise ValueError(f"{mistake}; choose from {', '.join(words)}")


def _check_examined(
    exam: Examination,
    supported: Collection[str],
    versions: Collection[str],
    only: Collection[str],
    known: Collection[str],
) -> None:
    """Raise ValueError if the report would be green although nothing was examined."""
    if supported and not exam.report.versions:
        raise ValueError(f"it supports {', '.join(supported)}, but none of versions={', '.join(versions)}")
    if not exam.report.versions:
        exam.add_note("it supports no known version, so the other checks were not run")
    has_failed = any(finding.problem and finding.check not in known for finding in exam.report.findings)
    if has_failed or exam.has_attached or (exam.report.versions and {*only} == {"refusals"}):
        return
    if not exam.report.versions:
        raise ValueError(f"it supports none of the versions {', '.join(ALL_VERSIONS)}")
    reason = exam.refused or 'the group "addresses" is for IPAM plugins (ipam=True)'
    raise ValueError(f"nothing was examined, because no ADD has succeeded: {reason}")
