"""libcni netavark-plugin: CNI networks for podman 5 and later."""

from __future__ import annotations

from libcni.cli.options import Argument

ARGUMENTS: tuple[Argument, ...] = ()


def netavark_plugin(_session: object) -> None:
    """Attach containers of podman 5 and 6 as a netavark driver.

    libcni netavark-plugin --help lists the options; --install writes the driver.
    """
    # Never called: the entry point runs the driver instead. The lists of commands read the docstring.
