"""Set the default route of a container through one of its interfaces, with iproute2. Blocking."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from typing import Any

from libcni.errors import CNIError
from libcni.manager.namespaces import run_program

__all__ = ["DefaultRouteError"]

# Above the usual metrics (the kernel's own for IPv6 is 1024), so that the new default route wins.
_METRIC = 4096


class DefaultRouteError(CNIError):
    """A default route could not be set."""


def set_default_route(netns: str, ifname: str, gateways: Sequence[str]) -> None:
    """Set the default route of a network namespace through an interface; raises DefaultRouteError.

    The default routes of other networks stay, with a high metric, because a CHECK of their plugins looks for them.

    Args:
        netns: the path of the namespace.
        ifname: the interface's name.
        gateways: the gateways, at most one of each address family.
    """
    for gateway in gateways:
        family = f"-{ipaddress.ip_address(gateway).version}"
        routes: list[dict[str, Any]] = json.loads(_ip(netns, "-json", family, "route", "show", "default") or "[]")
        for number, route in enumerate(routes):
            is_wanted = (route.get("dev"), route.get("gateway")) == (ifname, gateway)
            if is_wanted or "dev" not in route or route.get("metric", 0) >= _METRIC:
                continue
            words = ["default", *(["via", route["gateway"]] if "gateway" in route else []), "dev", route["dev"]]
            metric = ["metric", str(route["metric"])] if "metric" in route else []
            # The copy comes first, so that a failure in between leaves a default route.
            _ip(netns, family, "route", "replace", *words, "metric", str(_METRIC + number))
            _ip(netns, family, "route", "delete", *words, *metric)
        # "replace" and not "add": a repeated set-up must not fail on its own route.
        _ip(netns, family, "route", "replace", "default", "via", gateway, "dev", ifname)


def _ip(netns: str, *arguments: str) -> str:
    return run_program(["nsenter", f"--net={netns}", "ip", *arguments], DefaultRouteError)
