"""A TCP proxy on loopback that can hold back all data, like a network that is cut off."""

import socket
import threading
from contextlib import suppress


class Proxy:
    """Forwards connections on `port` to another port of this machine.

    While the event `open` is not set, data for the other port waits in the proxy. While `back` is not set,
    data from the other port waits. Connections are accepted even then.
    """

    def __init__(self, target: int) -> None:
        self.open, self.back = threading.Event(), threading.Event()
        self.open.set()
        self.back.set()
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections, and let the data of the open ones through."""
        with suppress(OSError):  # closed before
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.open.set()
        self.back.set()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._server.accept()
                threading.Thread(target=self._forward, args=(near,), daemon=True).start()

    def _forward(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        other = threading.Thread(target=_pump, args=(far, near, self.back), daemon=True)
        other.start()
        _pump(near, far, self.open)
        other.join()
        near.close()
        far.close()


def _pump(source: socket.socket, target: socket.socket, is_open: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            is_open.wait()
            target.sendall(data)
    is_open.wait()
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
