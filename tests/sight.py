"""What a node made by hand shows to the library: nothing else of this machine, whoever runs the tests."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from unittest import mock

VARIABLE = "LIBCNI_TESTS_SEE_ALL"
"""An environment variable for commands of the fork server: ``see_all`` is called before them."""


def see_all() -> ExitStack:
    """Let the walk over all processes see everything, of which nothing holds a namespace, and no runtime be there.

    What is returned must be closed at the end.
    """
    from libcni.engines.oci.ended_containers import RUNTIMES
    from libcni.kernel.life import Life
    from libcni.kernel.namespace_holders import FIRST_PID_NAMESPACE

    walk = SimpleNamespace(held={}, blind="", outside="", sees_containers=True, pid_namespace=FIRST_PID_NAMESPACE)
    seen = ExitStack()
    seen.enter_context(mock.patch.object(Life, "walk", walk))
    seen.enter_context(mock.patch.dict(RUNTIMES, dict.fromkeys(RUNTIMES, ())))
    return seen
