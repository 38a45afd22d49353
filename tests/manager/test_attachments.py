"""Recorded attachments: their order, and whose a torn record may be."""

from __future__ import annotations

import pytest

from libcni import CNIErrorGroup
from manager.fakes import ManagerNode


@pytest.mark.parametrize("name", ["c-c1-x1-x2", "c-c1-x1"])
def test_a_torn_record_that_does_not_say_enough_is_an_error_and_the_rest_is_detached(
    three_attached: ManagerNode, name: str
) -> None:
    """Its name may mean several attachments, or a network that has gone: nobody could say that all is detached."""
    if name == "c-c1-x1":
        (three_attached.conf_dir / "c.conflist").unlink()
    record = three_attached.cache / "results" / name
    record.write_bytes(b"")
    with pytest.raises(CNIErrorGroup) as caught:
        three_attached.manager().tear_down("c1")
    assert str(record) in str(caught.value)
    assert [one.path for one in caught.value.report.of("unreadable")] == [str(record)]
    assert {"a", "b"} <= {one.network for one in caught.value.report.of("detached")}
    assert record.exists()


def test_a_torn_record_of_another_container_is_no_obstacle(three_attached: ManagerNode) -> None:
    (three_attached.cache / "results" / "c-c2-x1").write_bytes(b"")
    assert len(three_attached.manager().tear_down("c1").of("detached")) == 3
