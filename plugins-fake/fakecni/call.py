"""One call, and the checks with which a real plugin would refuse it."""

from __future__ import annotations

import json
import string
import sys

from fakecni import results
from fakecni.language import VERBS

if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)  # otherwise an integer of more than 4,300 digits is refused

ATTACHMENT = ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME")
REQUIRED = {"ADD": ATTACHMENT, "CHECK": ATTACHMENT, "DEL": ("CNI_CONTAINERID", "CNI_IFNAME"), "GC": ("CNI_PATH",)}
SINCE = {"CHECK": (0, 4), "GC": (1, 1), "STATUS": (1, 1)}


class Failure(Exception):  # noqa: N818 - it is a plugin's answer, not an error of this program
    """A failure that becomes an error document."""

    def __init__(self, code: int, msg: str, details: str = "", **more: object) -> None:
        super().__init__(msg)
        self.fields = {"code": code, "msg": msg, **({"details": details} if details else {}), **more}

    def document(self, version: str) -> dict:
        """Return the spec's error document."""
        return {"cniVersion": version or results.VERSIONS[-1], **self.fields}


class Call:
    """One call: its environment and its configuration."""

    def __init__(self, env: dict, stdin: bytes) -> None:
        self.env, self.stdin = env, stdin
        self.verb = env.get("CNI_COMMAND", "")
        self.container = env.get("CNI_CONTAINERID", "")
        self.netns = env.get("CNI_NETNS", "")
        self.ifname = env.get("CNI_IFNAME", "")
        self.config, self.problem = _parsed(stdin)
        self.network = self.config.get("name", "")
        self.version = self.config.get("cniVersion", "")

    def refuse_bad_environment(self) -> None:
        """Fail with code 4 if a variable that the verb needs is missing or empty."""
        names = REQUIRED.get(self.verb, ()) if self.verb else ("CNI_COMMAND",)
        missing = [name for name in names if not self.env.get(name)]
        if missing:
            raise Failure(4, "required env variables [{}] missing".format(",".join(missing)))

    def refuse_bad_config(self, supported: list) -> None:
        """Fail as real plugins do: no JSON 6, no name 7, unknown verb 4, wrong version 1."""
        if self.problem:
            raise Failure(6, "cannot decode the network configuration", self.problem)
        if not self.network:
            raise Failure(7, "missing network name")
        if not _is_name(self.network):
            raise Failure(7, "invalid characters found in network name", str(self.network))
        if self.verb in ("ADD", "CHECK", "DEL"):
            if not _is_name(self.container):
                raise Failure(4, "invalid characters in containerID", self.container)
            if not _is_ifname(self.ifname):
                raise Failure(4, "interface name is invalid", self.ifname)
        if self.verb not in VERBS:
            raise Failure(4, f"unknown CNI_COMMAND: {self.verb}")
        if (self.version or results.VERSIONS[0]) not in supported:
            details = f'config is "{self.version}", plugin supports {json.dumps(supported)}'
            raise Failure(1, "incompatible CNI versions", details)
        if results.number(self.version) < SINCE.get(self.verb, (0,)):
            raise Failure(1, f"config version does not allow {self.verb}")

    def previous(self) -> dict | None:
        """Return prevResult in the form of 1.x, or None; fail if it has the form of another version."""
        document = self.config.get("prevResult")
        if document is None:
            return None
        has = document.get("cniVersion", self.version)
        if results.generation(has) != results.generation(self.version):
            raise Failure(6, "could not parse prevResult", f'it is of version "{has}"')
        return results.plain(document)

    def required_previous(self) -> dict:
        """Return prevResult; fail with code 7 if there is none."""
        previous = self.previous()
        if previous is None:
            raise Failure(7, "required prevResult missing")
        return previous


def _is_name(value: object) -> bool:
    """Return whether a network name or container ID is one that real plugins accept. They become parts of paths."""
    allowed = string.ascii_letters + string.digits
    return isinstance(value, str) and value[:1] in allowed and not set(value) - set(allowed + "_.-")


def _is_ifname(name: str) -> bool:
    long = len(name.encode("utf-8", "surrogateescape")) > 15  # noqa: PLR2004 - IFNAMSIZ without the closing NUL
    return not long and name not in (".", "..") and not any(char in "/:" or char.isspace() for char in name)


def _parsed(stdin: bytes) -> tuple:
    """Return the configuration, and the problem with it or ""."""
    try:
        document = json.loads(stdin)
    except ValueError as error:
        return {}, str(error)
    return (document, "") if isinstance(document, dict) else ({}, "it is not an object")
