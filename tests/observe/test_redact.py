"""The values of capability arguments are redacted for logs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from libcni.observe import LoggingObserver
from libcni.testing import RecordingExecutor
from observe.canned import NET, RT, client, fields


@pytest.mark.parametrize("redact", [False, True])
def test_debug_shows_the_configuration_and_redacts_capability_values_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, redact: bool
) -> None:
    caplog.set_level(logging.DEBUG, "libcni.calls")
    client(tmp_path, RecordingExecutor(), LoggingObserver(redact=redact)).add_network_list(NET, RT)
    text = fields(caplog.records[0])["config"]
    shown = '"[redacted]"' if redact else '"c2:11:22:33:44:55"'
    assert f'"runtimeConfig":{{"mac":{shown}}}' in text
    assert ("c2:11:22:33:44:55" in caplog.text) is not redact


def test_what_is_no_json_is_redacted_whole() -> None:
    from libcni.observe.redact import redacted

    assert redacted(b"secret") == '"[redacted]"'
