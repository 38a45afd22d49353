"""libcni oci-hook: CNI networks for the containers of an OCI runtime."""

from __future__ import annotations

from libcni.oci import main


def oci_hook(_session: object) -> None:
    """Attach and detach the containers of runc, crun and others.

    It runs as their hook. libcni oci-hook --help has its options.
    """
    # For the list of commands alone: the entry point runs the hook itself, before typer is loaded.
    main(["--help"])
