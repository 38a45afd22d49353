"""The daemon of a thick plugin: it answers the calls that shim.py passes on. Start it as root."""

import io
import json
import socketserver

from libcni.plugin import Plugin, Request

plugin = Plugin("thick")


@plugin.add
def add(request: Request) -> None:
    """Answer with an address."""
    request.result.add_ip("10.61.0.9/24")


@plugin.delete
def delete(request: Request) -> None:
    """Say whose container ended."""
    print("gone:", request.container_id)  # the shim's stderr


class Call(socketserver.StreamRequestHandler):
    """One call of the plugin."""

    def handle(self) -> None:
        """Run the call, and send back its exit status, stdout and stderr."""
        call = json.loads(self.rfile.read())
        stdout, stderr = io.StringIO(), io.StringIO()
        status = plugin.main(call["env"], io.BytesIO(call["stdin"].encode()), stdout, stderr)
        self.wfile.write(json.dumps([status, stdout.getvalue(), stderr.getvalue()]).encode())


def serve(path: str) -> socketserver.ThreadingUnixStreamServer:
    """Return a server of calls on the socket at a path."""
    return socketserver.ThreadingUnixStreamServer(path, Call)


if __name__ == "__main__":
    with serve("/run/thick.sock") as server:
        server.serve_forever()
