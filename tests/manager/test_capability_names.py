"""The capabilities that only one interface of a container can have."""

from __future__ import annotations

from libcni.config.capabilities import CapabilityArgs, _key
from libcni.manager.container import _OF_ONE_INTERFACE


def test_they_are_well_known_ones() -> None:
    assert {_key(name) for name in CapabilityArgs.model_fields} >= _OF_ONE_INTERFACE
