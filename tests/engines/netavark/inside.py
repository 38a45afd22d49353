"""Scenarios with real podman: scripts/peers podman -- python3 /repository/tests/engines/netavark/inside.py NAME.

They look at links, reservations, rules and records. test_podman.py runs each in a small Debian of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from libcni import CNIConfig
from libcni.testing import wait_until

CONF_DIR = Path("/etc/cni/net.d")
LEASES = Path("/var/lib/cni/networks")
LIBCNI = [sys.executable, "-m", "libcni"]
BRIDGE = {"type": "bridge", "bridge": "front0", "isGateway": True, "ipMasq": True, "hairpinMode": True}
IPAM = {"type": "host-local", "subnet": "10.89.7.0/24", "routes": [{"dst": "0.0.0.0/0"}]}
FRONT: list[dict[str, Any]] = [
    {**BRIDGE, "ipam": IPAM},
    {"type": "tuning", "capabilities": {"mac": True}},
    {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
    {"type": "firewall"},
]
DUAL = {"type": "host-local", "ranges": [[{"subnet": "10.89.8.0/24"}], [{"subnet": "fd00:88::/64"}]]}
TAKEN = dict.fromkeys(("ips", "mac", "aliases"), True)
BACK = [{"type": "bridge", "bridge": "back0", "isGateway": True, "capabilities": TAKEN, "ipam": DUAL}]
SLOW = """#!/usr/bin/python3
import json, os, sys, time
conf, verb = json.load(sys.stdin), os.environ["CNI_COMMAND"]
if verb == "VERSION":
    print(json.dumps({"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}))
    sys.exit()
if os.path.exists("/run/slow-" + verb):
    open("/run/slow-now", "w").close()
    while os.path.exists("/run/slow-hold"):
        time.sleep(0.02)
    time.sleep(0.5)
if verb == "ADD":
    print(json.dumps(conf["prevResult"]))
"""
SERVER = ("sh", "-c", "echo hello >/index.html; httpd -f -p 80 -h /")


def run(*words: str, check: bool = True) -> str:
    """Run a command and return its output. A file takes it: a container that goes on would keep a pipe open."""
    with open("/run/output", "w+", encoding="utf-8") as output:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
        output.seek(0)
        text = output.read()
    assert not check or done.returncode == 0, f"{words} exited with {done.returncode}: {text}"
    return text


def podman(*words: str, check: bool = True) -> str:
    text = run("podman", *words, check=check)
    assert "listens on host port" not in text, "podman itself keeps the port for its container"
    return text


def libcni(*words: str) -> str:
    return run(*LIBCNI, *words)


def start(name: str, *words: str, command: tuple[str, ...] = ("sleep", "1000"), network: str = "front") -> str:
    """Start a container, and wait for its command: podman returns while its process is still that of runc."""
    text = "httpd -f" if command == SERVER else " ".join(command)
    before = len(processes(text))
    printed = podman("run", "-d", "--name", name, "--network", network, *words, "busybox", *command).strip()
    wait_until(lambda: len(processes(text)) > before)
    return printed


def fetch(url: str, container: str = "") -> bool:
    """Return whether a server of a container answers, to another container or the host."""
    wget = ("busybox", "wget", "-T", "3", "-qO-", url)
    return run(*(("podman", "exec", container) if container else ()), *wget, check=False) == "hello\n"


def configure(name: str, plugins: list[Any], version: str = "1.0.0") -> Path:
    file = CONF_DIR / f"{name}.conflist"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"cniVersion": version, "name": name, "plugins": plugins}), encoding="utf-8")
    return file


def records() -> list[tuple[str, str, str]]:
    """Return the owner, network and state of each attachment on record."""
    found = CNIConfig([], "/var/lib/cni").get_cached_attachments()
    return sorted((one.owner, one.network, one.state) for one in found)


def reservations() -> list[str]:
    return sorted(path.name for path in LEASES.glob("*/[0-9a-f]*[.:]*"))


def links() -> int:
    return len(json.loads(run("ip", "-j", "link", "show", "type", "veth")))


def rules() -> list[str]:
    """Return the rules of iptables for containers' addresses."""
    saved = [run(program) for program in ("iptables-save", "ip6tables-save")]
    lines = [line for text in saved for line in text.splitlines()]
    ours = ("10.89.", "10.61.", "fd00:88:")
    return [line for line in lines if line.startswith("-A") and any(prefix in line for prefix in ours)]


def left() -> dict[str, Any]:
    return {"records": records(), "reservations": reservations(), "links": links(), "rules": rules()}


def assert_nothing_left() -> None:
    assert left() == {"records": [], "reservations": [], "links": 0, "rules": []}


def address(name: str, network: str = "front") -> str:
    networks = json.loads(podman("inspect", name, "--format", "{{json .NetworkSettings.Networks}}"))
    found: str = networks[network]["IPAddress"]
    return found


def processes(text: str) -> list[int]:
    """Return the processes whose command line has a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if text in words and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found


def two_containers() -> None:
    """Two containers talk, a port is published, addresses are chosen, and nothing stays."""
    start("web", "-p", "8080-8081:80-81", command=SERVER)
    start("two", "--ip", "10.89.7.77", "--mac-address", "c2:11:22:33:44:55")
    assert (address("web"), address("two")) == ("10.89.7.2", "10.89.7.77")
    wait_until(lambda: fetch("http://10.89.7.2/", "two"))
    wait_until(lambda: fetch("http://10.89.7.1:8080/"))
    assert "c2:11:22:33:44:55" in podman("exec", "two", "ip", "link", "show", "eth0")
    assert records() == [("podman", "front", "ready")] * 2
    assert len([rule for rule in rules() if "--to-destination 10.89.7.2:81" in rule]) == 1
    podman("rm", "-f", "-t", "0", "web", "two")
    assert_nothing_left()
    # Each end of a container detaches it, each start attaches it.
    start("web", command=SERVER)
    podman("restart", "-t", "0", "web")
    assert records() == [("podman", "front", "ready")]
    podman("stop", "-t", "0", "web")
    assert_nothing_left()
    podman("start", "web")
    assert records() == [("podman", "front", "ready")]
    podman("rm", "-f", "-t", "0", "web")
    podman("run", "--rm", "--network", "front", "busybox", "true")
    assert_nothing_left()


def refusals() -> None:
    """What CNI cannot be told is refused, and nothing is made."""
    for words in (
        ("--subnet", "10.1.0.0/24"),
        ("--internal",),
        ("--ipv6",),
        ("--ipam-driver", "none"),
        ("--interface-name", "xx0"),
        ("--dns", "1.2.3.4"),
        ("--opt", "mtu=1400"),
    ):
        said = podman("network", "create", "--driver", "cni", "--opt", "conf=front", *words, "refused", check=False)
        assert "the driver cni" in said, (words, said)
    assert "refused" not in podman("network", "ls")
    assert "no CNI network nowhere" in podman("network", "create", "--driver", "cni", "nowhere", check=False)
    plain = [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.89.9.0/24"}}]
    configure("plain", plain)
    podman("network", "create", "--driver", "cni", "plain")
    said = podman("run", "--rm", "--network", "plain", "-p", "81:80", "busybox", "true", check=False)
    assert "no plugin of CNI network plain publishes ports" in said
    podman("run", "--rm", "--network", "plain:ports=ignore", "-p", "81:80", "busybox", "true")
    said = podman("run", "--rm", "--network", "front", "--ip", "10.99.0.9", "busybox", "true", check=False)
    assert "10.99.0.9" in said
    assert_nothing_left()


def networks_and_pods() -> None:
    """A container on three networks, connect and disconnect, options of one container, and a pod."""
    podman("network", "create", "--disable-dns", "--subnet", "10.99.0.0/24", "native")
    start(
        "c", "--network", "back:alias=db,ports=ignore,args=A=1", "--network", "native", "-p", "8080:80", command=SERVER
    )
    assert records() == [("podman", "back", "ready"), ("podman", "front", "ready")]
    [back] = [one for one in CNIConfig([], "/var/lib/cni").get_cached_attachments() if one.network == "back"]
    assert ("A", "1") in back.args
    assert "db" in back.capability_args["aliases"]
    wait_until(lambda: fetch("http://10.89.7.1:8080/"))
    podman("network", "disconnect", "front", "c")
    assert records() == [("podman", "back", "ready")]
    podman("network", "connect", "--ip", "10.89.7.50", "front", "c")
    assert address("c") == "10.89.7.50"
    wait_until(lambda: fetch("http://10.89.7.50/"))
    podman("rm", "-f", "-t", "0", "c")
    assert_nothing_left()
    infra = ("--infra-image", "busybox", "--infra-command", "sleep 1000")
    podman("pod", "create", "--name", "p", "--network", "front", "-p", "8081:80", *infra)
    podman("run", "-d", "--pod", "p", "busybox", *SERVER)
    wait_until(lambda: fetch("http://10.89.7.1:8081/"))
    assert records() == [("podman", "front", "ready")]
    podman("pod", "rm", "-f", "-t", "0", "p")
    podman("network", "rm", "native")
    assert_nothing_left()


def reload() -> None:
    """After a flush of the firewall a reload brings the ports back, and each address stays."""
    start("c", "--ip", "10.89.7.50", "-p", "8080:80", command=SERVER)
    start("d", network="back")
    before = podman("exec", "d", "ip", "-o", "addr", "show", "eth0").split("inet")[1:]
    taken = reservations()
    run("iptables", "-t", "nat", "-F")
    assert not fetch("http://10.89.7.1:8080/")
    for _ in range(2):
        podman("network", "reload", "--all")
        wait_until(lambda: fetch("http://10.89.7.1:8080/"))
        assert reservations() == taken
        assert records() == [("podman", "back", "ready"), ("podman", "front", "ready")]
    after = podman("exec", "d", "ip", "-o", "addr", "show", "eth0").split("inet")[1:]
    assert [part.split()[:2] for part in after] == [part.split()[:2] for part in before]
    podman("rm", "-f", "-t", "0", "c", "d")
    assert_nothing_left()


def twelve_at_once() -> None:
    names = [f"n{number}" for number in range(12)]
    every = [
        ["podman", "run", "-d", "--name", name, "--network", "front", "busybox", "sleep", "1000"] for name in names
    ]
    started = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for words in every]
    assert [process.wait() for process in started] == [0] * 12
    assert records() == [("podman", "front", "ready")] * 12
    assert len(set(reservations())) == 12
    ended = [subprocess.Popen(["podman", "rm", "-f", "-t", "0", name], stdout=subprocess.DEVNULL) for name in names]
    assert [process.wait() for process in ended] == [0] * 12
    assert_nothing_left()


def read_only_records() -> None:
    """Nothing is attached without a record; what is attached can be detached, and its record is repaired later."""
    start("c", "-p", "8080:80")
    run("mount", "--bind", "/var/lib/cni/results", "/var/lib/cni/results")
    run("mount", "-o", "remount,bind,ro", "/var/lib/cni/results")
    assert "read-only" in podman("run", "--rm", "--network", "front", "busybox", "true", check=False).lower()
    podman("rm", "-f", "-t", "0", "c", check=False)
    assert (reservations(), links(), rules()) == ([], 0, [])
    run("umount", "/var/lib/cni/results")
    libcni("repair", "--owner", "podman", "--yes")
    assert_nothing_left()


def reboot() -> None:
    """After a reboot podman starts containers again, and detaches none that it removes: repair does."""
    start("a", "--ip", "10.89.7.10", "-p", "8081:80", command=SERVER)
    start("b", "-p", "8082:80")
    with rebooted():
        assert records() == [("podman", "front", "stale-boot")] * 2
        podman("start", "a")
        assert ("podman", "front", "ready") in records()
        podman("rm", "b")
        said = libcni("repair", "--owner", "podman", "--yes")
        assert records() == [("podman", "front", "ready")], (records(), said)
        assert reservations() == ["10.89.7.10"]
        podman("rm", "-f", "-t", "0", "a")
        assert_nothing_left()


@contextmanager
def rebooted() -> Iterator[None]:
    """Take away what a reboot takes: processes, namespaces, /run, interfaces and rules; the boot has another ID."""
    for text in ("conmon", "sleep 1000", "httpd -f"):
        for number in processes(text):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    for path in Path("/run/netns").iterdir():
        run("umount", str(path))
    wait_until(lambda: links() == 0, 120)  # on a busy machine a namespace outlives its processes for a while
    run("umount", "-l", "/run")
    run_tmpfs = ["mount", "-t", "tmpfs", "tmpfs", "/run"]
    subprocess.run(run_tmpfs, check=True)
    for path in Path("/tmp").glob("*"):
        if path.is_dir() and path.name.startswith(("podman-run", "storage-run", "libpod")):
            shutil.rmtree(path)
    run("ip", "link", "del", "front0")
    for words in (("-F",), ("-t", "nat", "-F"), ("-X",), ("-t", "nat", "-X")):
        run("iptables", *words, check=False)
    Path("/tmp/boot_id").write_text("11111111-2222-3333-4444-555555555555\n", encoding="utf-8")
    run("mount", "--bind", "/tmp/boot_id", "/proc/sys/kernel/random/boot_id")
    try:
        yield
    finally:
        run("umount", "/proc/sys/kernel/random/boot_id")


def kills() -> None:
    """Whoever is killed while a container is attached or detached: podman's rm, repair and gc leave nothing."""
    Path("/opt/cni/bin").mkdir(parents=True)
    Path("/opt/cni/bin/slow").write_text(SLOW, encoding="utf-8")
    Path("/opt/cni/bin/slow").chmod(0o755)
    configure("front", [*FRONT[:3], {"type": "slow"}, FRONT[3]])
    everybody = ("podman run", "lib/podman/netavark", "netavark-plugin", "/opt/cni/bin/slow")
    for victims in (("lib/podman/netavark",), ("netavark-plugin",), ("podman run",), everybody):
        killed("ADD", victims)
    killed("ADD", ("podman run",), signal.SIGINT)
    killed("ADD", ("netavark-plugin",), signal.SIGTERM)
    for victims in (("lib/podman/netavark",), ("netavark-plugin",), ("podman rm",)):
        killed("DEL", victims)
    start("c", "-p", "8080:80")
    for number in (*processes("conmon --api"), *processes("sleep 1000")):
        os.kill(number, signal.SIGKILL)
    clean("conmon and the container")


def killed(verb: str, victims: tuple[str, ...], number: signal.Signals = signal.SIGKILL) -> None:
    """Kill programs while a plugin runs, and clean up as an operator does."""
    if verb == "DEL":
        start("c", "-p", "8080:80")
    hold = Path("/run/slow-hold")
    for file in (hold, Path(f"/run/slow-{verb}")):
        file.touch()
    add = ["run", "-d", "--name", "c", "--network", "front", "-p", "8080:80", "busybox", "sleep", "1000"]
    words = ["podman", *(add if verb == "ADD" else ["rm", "-f", "-t", "0", "c"])]
    with open("/run/killed", "w", encoding="utf-8") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0)
        wait_until(Path("/run/slow-now").exists)
        found = [one for text in victims for one in processes(text)]
        assert found, victims
        for one in found:
            with suppress(ProcessLookupError):
                os.kill(one, number)
        hold.unlink()  # a plugin that was not killed works on for a while
        process.wait()
    Path(f"/run/slow-{verb}").unlink()
    Path("/run/slow-now").unlink()
    wait_until(lambda: not processes("netavark-plugin"))
    clean(f"{number.name} to {victims} during {verb}")


def clean(case: str) -> None:
    podman("rm", "-f", "-t", "0", "--ignore", "-a", check=False)
    libcni("repair", "--owner", "podman", "--yes", "--pending-after", "0")
    if "during ADD" in case and "podman run" not in case:
        # Podman has removed the container, so repair alone frees what the killed set-up left.
        assert (records(), reservations(), links()) == ([], [], 0), f"{case}, after repair: {left()}"
    libcni("gc", "--runtime", "podman")
    wait_until(lambda: links() == 0, 120, f"{case}: an interface stays")
    found = left()
    for path in Path("/run/netns").glob("*"):
        run("umount", str(path), check=False)
        path.unlink(missing_ok=True)
    # Without its namespace bridge cannot remove its masquerade rules. Whose namespace podman removed is for the doctor.
    found["rules"] = [rule for rule in found["rules"] if not re.match("-A (POSTROUTING|CNI-[0-9a-f]{24}) ", rule)]
    assert found == {"records": [], "reservations": [], "links": 0, "rules": []}, f"{case}: {found}"
    sys.stdout.write(f"{case}: nothing left\n")


def collected() -> None:
    """gc takes podman's list, containers that are built and processes in a namespace count as alive."""
    start("c")
    start("d")
    libcni("gc", "--runtime", "podman")
    assert records() == [("podman", "front", "ready")] * 2
    # Podman forgets a container, as after a reset of its storage; its process lives on for a while.
    podman_id = podman("inspect", "d", "--format", "{{.Id}}").strip()
    empty = Path("/run/bin/podman")
    empty.parent.mkdir()
    empty.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    empty.chmod(0o755)
    run("env", "PATH=/run/bin:" + os.environ["PATH"], *LIBCNI, "gc", "--runtime", "podman")
    assert len(records()) == 2, "their processes live"
    for number in (*processes("conmon --api"), *processes("sleep 1000")):
        os.kill(number, signal.SIGKILL)
    wait_until(lambda: not processes("conmon --api") and not processes("sleep 1000"))
    libcni("gc", "--runtime", "podman")
    assert len(records()) == 2, f"podman still lists {podman_id}"
    run("env", "PATH=/run/bin:" + os.environ["PATH"], *LIBCNI, "gc", "--runtime", "podman")
    assert records() == []
    podman("rm", "-f", "-t", "0", "-a")
    assert_nothing_left()


def built() -> None:
    """A build is attached for each RUN, is no container of podman's list, and leaves nothing."""
    Path("/tmp/build").mkdir()
    text = "FROM busybox\nRUN ip addr show eth0 && sleep 4\n"
    Path("/tmp/build/Containerfile").write_text(text, encoding="utf-8")
    limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
    words = ["podman", "build", "--network", "front", *limits, "/tmp/build"]
    with open("/run/built", "w+", encoding="utf-8") as output:
        build = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        wait_until(lambda: records() == [("podman", "front", "ready")] or build.poll() is not None)
        libcni("gc", "--runtime", "podman")
        assert build.wait() == 0, Path("/run/built").read_text(encoding="utf-8")
    assert "10.89.7.2/24" in Path("/run/built").read_text(encoding="utf-8")
    assert_nothing_left()


def page() -> None:
    """Every command of the page works as written, with its network and the command as one file."""
    text = Path("/repository/docs/how-to/podman.md").read_text(encoding="utf-8")
    [(file, document)] = re.findall(r'^```json title="(.*?)"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    for path in CONF_DIR.iterdir():
        path.unlink()
    Path(file).write_text(document, encoding="utf-8")
    podman("network", "rm", "front", "back")
    Path("/usr/local/lib/netavark/cni").unlink()
    Path("/usr/local/bin").mkdir()
    shutil.copy("/repository/build/one-file/libcni", "/usr/local/bin/libcni")
    # A node has Python alone.
    run("mount", "-t", "tmpfs", "tmpfs", "/usr/lib/python3/dist-packages")
    os.environ["PATH"] += ":/usr/local/bin"
    [commands] = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    said = [run("sh", "-c", line.removeprefix("$ ")) for line in commands.splitlines()]
    assert "podman network create --driver cni NETWORK" in said[0]
    assert "listens on host port" not in said[2]
    assert "inet 10.61.0.9/24" in said[3]
    assert "ready  podman" in said[4]
    assert_nothing_left()
    [unit] = re.findall(
        "^ExecStart=(.*)$", Path("/repository/examples/systemd/libcni-podman.service").read_text(), re.MULTILINE
    )
    run("sh", "-c", unit)


def rootless() -> None:
    """A user's containers talk, publish a port and are detached, with records and reservations of the user."""
    for path in (Path("/home/user"), Path("/run/user/1000")):
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, 1000, 1000)
        path.chmod(0o700)
    conf = Path("/etc/containers/containers.conf")
    text = conf.read_text(encoding="utf-8").replace('"runc"', '"crun"')
    conf.write_text(text.replace("[containers]", '[containers]\ncgroups = "disabled"'), encoding="utf-8")
    # The directories in it are root's.
    Path("/etc/containers/storage.conf").write_text('[storage]\ndriver = "vfs"\n', encoding="utf-8")
    # What pasta needs: a tun device that it may open, and a way out of this machine.
    run("mknod", "-m", "666", "/run/tun", "c", "10", "200")
    run("mount", "--bind", "/run/tun", "/dev/net/tun")
    for words in (
        "link add out0 type veth peer name out1",
        "link set out1 up",
        "link set out0 up",
        "addr add 192.0.2.2/24 dev out0",
    ):
        run("ip", *words.split())
    run("ip", "route", "add", "default", "via", "192.0.2.1")
    env = {"HOME": "/home/user", "XDG_RUNTIME_DIR": "/run/user/1000", "PATH": os.environ["PATH"], "USER": "user"}
    env |= {name: os.environ[name] for name in ("PYTHONPATH",)} | {"PYTHONDONTWRITEBYTECODE": "1"}
    as_user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", sys.executable, __file__, "as_user"]
    done = subprocess.run(as_user, env=env, check=False, cwd="/home/user")
    assert done.returncode == 0


def as_user() -> None:
    """Run as the user of ``rootless``."""
    home = Path.home()
    said = run_here(*LIBCNI, "netavark-plugin", "--install")
    [line] = [line for line in said.splitlines() if line.startswith("netavark_plugin_dirs")] or [said]
    assert line != said, said
    conf = home / ".config/containers/containers.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(f"[network]\n{line}\n", encoding="utf-8")
    bridge = {**BRIDGE, "ipam": {**IPAM, "dataDir": f"{home}/.local/share/libcni/networks"}}
    document = {"cniVersion": "1.0.0", "name": "front", "plugins": [bridge, *FRONT[1:]]}
    (home / ".config/cni/net.d/front.conflist").write_text(json.dumps(document), encoding="utf-8")
    run_here("sh", "-c", "tar -C /tmp/image -c . | podman import --quiet - busybox")
    run_here("podman", "network", "create", "--driver", "cni", "front")
    common = ["podman", "run", "-d", "--network", "front"]
    web = run_here(*common, "--name", "web", "-p", "8080:80", "busybox", *SERVER).strip()
    run_here(*common, "--name", "two", "busybox", "sleep", "1000")
    assert run_here("podman", "exec", "two", "wget", "-T", "3", "-qO-", "http://10.89.7.2/") == "hello\n"
    assert run_here("busybox", "wget", "-T", "3", "-qO-", "http://127.0.0.1:8080/") == "hello\n"
    cni = CNIConfig([], home / ".local/share/libcni")
    assert [(one.owner, one.container_id != "") for one in cni.get_cached_attachments()] == [("podman", True)] * 2
    # The user's containers are alive, inside and outside of podman's namespaces.
    directories = ("--cache-dir", f"{home}/.local/share/libcni", "--conf-dir", f"{home}/.config/cni/net.d")
    inside, leases = ("podman", "unshare", "--rootless-netns"), home / ".local/share/libcni/networks/front"
    for program in ((), inside):
        run_here(*program, *LIBCNI, "gc", "--runtime", "podman", *directories)
        run_here(*program, *LIBCNI, "repair", "--owner", "podman", "--yes", "--pending-after", "0", *directories)
    assert len(cni.get_cached_attachments()) == 2
    assert run_here("podman", "exec", "two", "wget", "-T", "3", "-qO-", "http://10.89.7.2/") == "hello\n"
    # The namespace of an ended container that podman never tears down, as after a kill of podman.
    [gone] = [one for one in cni.get_cached_attachments() if one.container_id != web]
    for number in (*processes(f"-c {gone.container_id}"), *processes("sleep 1000")):  # its conmon would tear it down
        with suppress(ProcessLookupError):  # the sleep ends with its conmon
            os.kill(number, signal.SIGKILL)
    run_here("podman", "unshare", "umount", gone.netns)
    said = run_here(*inside, *LIBCNI, "repair", "--owner", "podman", "--yes", *directories)
    assert [one.container_id for one in cni.get_cached_attachments()] == [web], said
    run_here("podman", "rm", "-f", "-t", "0", "web", "two")
    assert cni.get_cached_attachments() == []
    assert list(leases.glob("10.*")) == []


COUNTED = """#!/usr/bin/python3
import atexit, os, sys, time
atexit.register(lambda: open(f"/run/cost/{os.getpid()}", "w").write(str(time.process_time())))
from libcni.cli import run
sys.argv[1:1] = %s
run()
"""


def cost() -> None:
    """Print the processor time in ms of each of some ``podman run --rm``: the driver's own, and that of all."""
    driver = Path("/usr/local/lib/netavark/cni")
    words = driver.read_text(encoding="utf-8").replace('"$@"', "").split()
    driver.write_text(COUNTED % words[words.index("netavark-plugin") :], encoding="utf-8")
    # Podman's cleanup, whose parent ends, must become a child of this program to be counted.
    assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    for _ in range(11):
        shutil.rmtree("/run/cost", ignore_errors=True)
        Path("/run/cost").mkdir()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        podman("run", "--rm", "--network", "front", "--publish", "8080:80", "busybox", "true")
        wait_until(lambda: records() == [])
        with suppress(ChildProcessError):
            while os.wait():
                pass
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = sum(float(path.read_text(encoding="utf-8")) for path in Path("/run/cost").iterdir())
        of_all = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        sys.stdout.write(f"cost {own * 1000:.1f} {of_all * 1000:.1f}\n")


def run_here(*words: str) -> str:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words} exited with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def main(name: str) -> None:
    scenario: Callable[[], None] = globals()[name]
    if name == "as_user":
        scenario()
        return
    libcni("netavark-plugin", "--install")
    tree = Path("/tmp/image/bin")
    tree.mkdir(parents=True)
    shutil.copy("/usr/bin/busybox", tree)
    for program in ("sh", "sleep", "wget", "httpd", "ip", "true"):
        (tree / program).symlink_to("busybox")
    run("sh", "-c", "tar -C /tmp/image -c . | podman import --quiet - busybox")
    configure("front", FRONT)
    configure("back", BACK)
    podman("network", "create", "--driver", "cni", "front")
    podman("network", "create", "--driver", "cni", "back")
    scenario()


if __name__ == "__main__":
    main(sys.argv[1])
