"""The kinds of fake plugins, without their faults."""

from __future__ import annotations

from fakecni.call import Call, Failure
from fakecni.state import Owner, Shelf, allocate


class Plugin:
    """``fake``: echo prevResult; without one, answer with one interface."""

    def __init__(self, call: Call, state_dir: str | None) -> None:
        self.call, self._state_dir = call, state_dir
        self.owner = (call.container, call.ifname, call.network)

    def add(self) -> dict:
        """Return the result."""
        return self.call.previous() or {"interfaces": [self.interface()], "ips": []}

    def check(self) -> None:
        """Fail if the product of ADD is missing."""
        self.call.required_previous()

    def delete(self) -> None:
        """Remove the resources of this attachment, if there are any."""
        self.call.previous()

    def gc(self) -> None:
        """Remove the resources of this network's attachments that are not valid."""

    def status(self) -> None:
        """Fail if ADD cannot be served."""

    def shelf(self, *parts: str) -> Shelf:
        """Return a directory below the state directory."""
        if not self._state_dir:
            raise Failure(7, "no state directory: set fake.stateDir or FAKE_CNI_STATE")
        return Shelf(self._state_dir, *parts)

    def interface(self) -> dict:
        """Return the container's interface as a result lists it."""
        mac = _mac(self.call.container + self.call.ifname)
        return {"name": self.call.ifname, "mac": mac, "sandbox": self.call.netns}

    def mine(self, owner: Owner) -> bool:
        """Return whether ``owner`` is this attachment."""
        return owner == self.owner

    def stale(self, owner: Owner) -> bool:
        """Return whether GC removes the resources of ``owner``: of this network or unknown, and not valid."""
        if "cni.dev/valid-attachments" not in self.call.config:
            return False  # no list is not an empty list; Go sends null for an empty one
        valid = self.call.config["cni.dev/valid-attachments"] or []
        known = [(entry["containerID"], entry["ifname"]) for entry in valid]
        return owner[2] in (self.call.network, "") and owner[:2] not in known


class Ipam(Plugin):
    """``fake-ipam``: allocate addresses, as host-local does."""

    def addresses(self) -> Shelf:
        """Return the directory of this network's addresses."""
        return self.shelf("addresses", self.call.network)

    def add(self) -> dict:
        """Allocate one address of each range."""
        shelf = self.addresses()
        if shelf.owned(self.mine):
            raise Failure(999, f"duplicate allocation for container {self.call.container}, {self.call.ifname}")
        ipam = self.call.config.get("ipam", {})
        subnets = [ipam["subnet"]] if "subnet" in ipam else []
        subnets += [ranges[0]["subnet"] for ranges in ipam.get("ranges", [])]
        ips = [allocate(shelf, subnet, self.owner) for subnet in subnets]
        return {"ips": ips, "routes": ipam.get("routes", [])}

    def check(self) -> None:
        """Fail if an address that prevResult lists is not allocated."""
        previous = self.call.required_previous()
        held = self.addresses().owned(self.mine)
        for ip in previous.get("ips", []):
            if ip["address"].partition("/")[0] not in held:
                raise Failure(999, f"address {ip['address']} is not allocated", f"allocated: {', '.join(held) or '-'}")

    def delete(self) -> None:
        """Give back the addresses of this attachment."""
        self.addresses().release(self.mine)

    def gc(self) -> None:
        """Give back the addresses of attachments that are no longer valid."""
        self.addresses().release(self.stale)


class Bridge(Plugin):
    """``fake-bridge``: make an interface (a file in the state directory), and addresses where ``ipam`` is given.

    As the real bridge does, DEL removes the interface of that name, whichever network made it.
    """

    def __init__(self, call: Call, state_dir: str | None) -> None:
        super().__init__(call, state_dir)
        self.ipam = Ipam(call, state_dir) if call.config.get("ipam") else None
        self.name = f"{call.container}.{call.ifname}"

    def add(self) -> dict:
        """Make the interface, then allocate."""
        if not self.shelf("interfaces").take(self.name, self.owner):
            raise Failure(999, f"container {self.call.container} has an interface {self.call.ifname} already")
        allocated = self.ipam.add() if self.ipam else {"ips": [], "routes": []}
        ips = [{**ip, "interface": 2} for ip in allocated["ips"]]
        return {"interfaces": self._interfaces(), "ips": ips, "routes": allocated["routes"]}

    def _interfaces(self) -> list:
        bridge, veth = self.call.config.get("bridge", "fake0"), "veth" + _mac(self.name).replace(":", "")[4:]
        return [{"name": bridge, "mac": _mac(bridge)}, {"name": veth, "mac": _mac(veth)}, self.interface()]

    def check(self) -> None:
        """Fail if the interface or its addresses are not there."""
        self.call.required_previous()
        if self.name not in self.shelf("interfaces").names():
            raise Failure(999, f"container {self.call.container} has no interface {self.call.ifname}")
        if self.ipam:
            self.ipam.check()

    def delete(self) -> None:
        """Give back addresses and interface."""
        if self.ipam:
            self.ipam.delete()
        self.shelf("interfaces").drop(self.name)

    def gc(self) -> None:
        """Give back the resources of attachments that are no longer valid."""
        self.shelf("interfaces").release(self.stale)
        if self.ipam:
            self.ipam.gc()


class Tuning(Plugin):
    """``fake-tuning``: set the MAC address that ``runtimeConfig.mac`` asks for."""

    def add(self) -> dict:
        """Return prevResult with the MAC address changed."""
        previous, wanted = self.call.required_previous(), self._wanted()
        if wanted:
            self._entry(previous)["mac"] = wanted
        return previous

    def check(self) -> None:
        """Fail if prevResult has another MAC address than the one asked for."""
        has, wanted = self._entry(self.call.required_previous()).get("mac"), self._wanted()
        if wanted and has != wanted:
            raise Failure(999, f"interface {self.call.ifname} has MAC address {has}, not {wanted}")

    def _wanted(self) -> str | None:
        return self.call.config.get("runtimeConfig", {}).get("mac")

    def _entry(self, result: dict) -> dict:
        for entry in result.get("interfaces", []):
            if entry.get("name") == self.call.ifname and entry.get("sandbox"):
                return entry
        raise Failure(7, f"prevResult has no interface {self.call.ifname}")


class Portmap(Plugin):
    """``fake-portmap``: keep the host's ports that ``runtimeConfig.portMappings`` asks for; echo prevResult."""

    def add(self) -> dict:
        """Take the ports."""
        previous = self.call.required_previous()
        for port in self._wanted():
            if not self.shelf("ports").take(port, self.owner):
                raise Failure(999, f"host port {port} is taken")
        return previous

    def check(self) -> None:
        """Fail if a port is not this attachment's."""
        self.call.required_previous()
        held = self.shelf("ports").owned(self.mine)
        for port in self._wanted():
            if port not in held:
                raise Failure(999, f"host port {port} is not mapped")

    def delete(self) -> None:
        """Give back the ports."""
        self.shelf("ports").release(self.mine)

    def gc(self) -> None:
        """Give back the ports of attachments that are no longer valid."""
        self.shelf("ports").release(self.stale)

    def _wanted(self) -> list:
        mappings = self.call.config.get("runtimeConfig", {}).get("portMappings", [])
        return ["{hostPort}-{protocol}".format(**{"protocol": "tcp", **mapping}) for mapping in mappings]


PLUGINS = {"fake": Plugin, "bridge": Bridge, "ipam": Ipam, "portmap": Portmap, "tuning": Tuning}
ACTIONS = {
    "ADD": lambda plugin: plugin.add(),
    "CHECK": lambda plugin: plugin.check(),
    "DEL": lambda plugin: plugin.delete(),
    "GC": lambda plugin: plugin.gc(),
    "STATUS": lambda plugin: plugin.status(),
}


def _mac(text: str) -> str:
    """Return a MAC address that is always the same for ``text``."""
    total = 0
    for byte in text.encode():
        total = (total * 31 + byte) % (1 << 40)
    return ":".join(["02", *(f"{byte:02x}" for byte in total.to_bytes(5, "big"))])
