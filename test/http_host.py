"""A local HTTP server, in a thread, that injects faults: cut, stalled and slow responses, wrong lengths."""
import http.server
import threading
import time
import urllib.parse


class Page:
    """The response for one path. Each request consumes one of `actions`, in order; once none is left, the
    page is sent unchanged. ranges: whether Range is honoured; headers: additional ones, such as ETag."""

    def __init__(self, body, actions=(), ranges=True, headers=None):
        self.body, self.actions, self.ranges, self.headers = body, list(actions), ranges, headers or {}


def send(handler, page, announce=0, until=None, step=1 << 16, pause=0.0, first_byte=None):
    """Sends the page, or the requested range. announce: bytes added to the true Content-Length, None: no
    Content-Length; until: bytes after which the connection ends; step, pause: bytes per write and seconds
    after it; first_byte: where the range begins, instead of the requested position."""
    begin, code = 0, 200
    requested = handler.headers.get("Range", "")
    if requested and page.ranges and handler.headers.get("If-Range") in (None, page.headers.get("ETag")):
        begin, code = int(requested[len("bytes="):-1]) if first_byte is None else first_byte, 206
    if code == 206 and begin >= len(page.body):
        return status(416, {"Content-Range": f"bytes */{len(page.body)}"})(handler, page)
    body = page.body[begin:]
    handler.send_response(code)
    for name, value in page.headers.items():
        handler.send_header(name, value)
    if announce is not None:
        handler.send_header("Content-Length", str(len(body) + announce))
    if code == 206:
        handler.send_header("Content-Range", f"bytes {begin}-{len(page.body) - 1}/{len(page.body)}")
    handler.end_headers()
    for at in range(0, len(body[:until]), step):
        handler.wfile.write(body[:until][at:at + step])
        handler.wfile.flush()
        time.sleep(pause)


def cut(after):
    return lambda handler, page: send(handler, page, until=after)


def stall(after):
    def act(handler, page):
        send(handler, page, until=after)
        handler.server.closing.wait(30)
    return act


def slow(step, pause):
    return lambda handler, page: send(handler, page, step=step, pause=pause)


def announce(more):
    """Sends a Content-Length that is `more` bytes too large; None: no Content-Length."""
    return lambda handler, page: send(handler, page, announce=more)


def other_range(first_byte):
    return lambda handler, page: send(handler, page, first_byte=first_byte)


def status(code, headers=None):
    def act(handler, page):
        handler.send_response(code)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
    return act


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.path, dict(self.headers)))
        page = self.server.pages.get(urllib.parse.urlsplit(self.path).path)
        if page is None:
            self.send_error(404)
        elif page.actions:
            page.actions.pop(0)(self, page)
        else:
            send(self, page)

    def log_message(self, *_):
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass  # the tests make clients disconnect on purpose


class Host:
    """`with Host({"/path": Page(...)}) as host`: host.url, host.pages, host.requests (path, headers)."""

    def __init__(self, pages):
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.pages = self.pages = pages
        self.server.requests = self.requests = []
        self.server.closing = threading.Event()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.closing.set()
        self.server.shutdown()
        self.server.server_close()
