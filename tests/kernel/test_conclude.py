"""The table of the proof of life: what each sign proves, and which one goes before which."""

from __future__ import annotations

import pytest

from libcni.kernel.life import Facts, conclude

GONE = {"path": "gone"}
WALKED = {**GONE, "has_walked": True}
OLD = {**WALKED, "is_old": True}

ROWS = [
    # facts, verdict, sign
    ({"path": "same"}, "alive", "path"),
    ({"has_rebooted": True, "path": "same"}, "dead", "reboot"),
    ({"path": "other", "is_inode_reused": True}, "dead", "inode"),
    ({**GONE, "was_namespace": False}, "dead", "path"),
    # The kernel decides, whatever a walk would say.
    ({**GONE, "kernel": True}, "alive", "kernel"),
    ({**GONE, "kernel": False}, "dead", "kernel"),
    ({"path": "other", "kernel": False, "host_end": "there"}, "dead", "kernel"),
    ({**OLD, "kernel": True, "host_end": "gone"}, "alive", "kernel"),
    # A missing path is no proof.
    (GONE, "", ""),
    ({"path": "other"}, "", ""),
    ({**GONE, "host_end": "gone"}, "", ""),
    ({**GONE, "is_old": True, "host_end": "gone"}, "", ""),
    ({**GONE, "host_end": "there"}, "alive", "host end"),
    ({"path": "none", "is_nameless": True, "has_walked": True, "is_old": True}, "unknown", "blind"),
    # Each sign of a walk.
    ({**OLD, "held": ("thread", "/proc/7/ns/net")}, "alive", "thread"),
    ({**OLD, "held": ("mount", "")}, "alive", "mount"),
    ({**OLD, "held": ("descriptor", "/proc/7/fd/3"), "host_end": "gone"}, "alive", "descriptor"),
    ({**OLD, "held": ("mount", ""), "blind": "hidden"}, "alive", "mount"),
    ({**OLD, "address": "eth0 in /run/netns/a"}, "alive", "address"),
    ({**OLD, "similar": "eth0 in /run/netns/a"}, "unknown", "address"),
    ({**OLD, "similar": "eth0 in /run/netns/a", "host_end": "gone"}, "dead", "walk"),
    ({**OLD, "host_end": "there"}, "alive", "host end"),
    # A walk without a sign.
    (OLD, "dead", "walk"),
    ({**OLD, "host_end": "another's"}, "dead", "walk"),
    (WALKED, "unknown", "young"),
    ({**WALKED, "host_end": "another's"}, "unknown", "young"),
    ({**WALKED, "host_end": "gone"}, "dead", "walk"),
    ({**OLD, "blind": "hidden"}, "unknown", "blind"),
    ({**OLD, "blind": "hidden", "host_end": "gone"}, "unknown", "blind"),
    # A rootless program sees its containers, and no process of root.
    ({**OLD, "outside": "hidden"}, "unknown", "blind"),
    ({**OLD, "outside": "hidden", "host_end": "another's"}, "unknown", "blind"),
    ({**WALKED, "outside": "hidden", "host_end": "gone"}, "dead", "walk"),
    ({**OLD, "unread": "/run/netns/a: it changes"}, "unknown", "unread"),
    ({**OLD, "port": "veth7"}, "unknown", "port"),
    ({**OLD, "port": "veth7", "host_end": "gone"}, "dead", "walk"),
]


@pytest.mark.parametrize(("facts", "verdict", "sign"), ROWS)
def test_what_the_facts_prove(facts: dict[str, object], verdict: str, sign: str) -> None:
    answer = conclude(Facts(**facts))  # type: ignore[arg-type]  # each row has some of the fields
    assert (answer.verdict, answer.sign) == (verdict, sign) if answer is not None else verdict == ""


def test_an_answer_that_is_no_proof_of_death_is_not_dead() -> None:
    for facts, verdict, _ in ROWS:
        answer = conclude(Facts(**facts))  # type: ignore[arg-type]  # each row has some of the fields
        if answer is not None:
            assert answer.is_dead == (verdict == "dead")
            assert answer.is_alive == (verdict == "alive")
            assert answer.reason
