"""HTTP servers for tests, on loopback, for the length of a block."""

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # all of an evaluation's requests may come at once


@contextmanager
def running(handler, **state):
    """The server, whose `handler` finds `state` as attributes of its `server`; and its address."""
    server = Server(("127.0.0.1", 0), handler)
    vars(server).update(state)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
