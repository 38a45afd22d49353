"""The age of an attachment, by the boot clock."""

from __future__ import annotations

import time

from nodes import FakeNode

from libcni import CNIConfig
from libcni.diagnosis import attachment_age


def test_an_age_is_never_negative(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(created=time.time() + 1000)
    (one,) = cni.get_cached_attachments()
    assert attachment_age(one) is not None
    assert attachment_age(one) >= 0  # type: ignore[operator]


def test_an_age_is_measured_with_the_boot_clock(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(created=time.time() - 86400)
    (one,) = cni.get_cached_attachments()
    age = attachment_age(one)
    assert age is not None
    assert age < 3600, "the wall clock was set forward by a day since"
