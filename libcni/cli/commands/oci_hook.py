"""libcni oci-hook: CNI networks for the containers of an OCI runtime."""

from __future__ import annotations

from libcni.cli.options import Argument

ARGUMENTS: tuple[Argument, ...] = ()


def oci_hook(_session: object) -> None:
    """Attach containers of runc, crun and youki as their hook.

    libcni oci-hook --help lists the options.
    """
    # Never called: the entry point runs the hook instead. The lists of commands read the docstring.
