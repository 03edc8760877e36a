"""The live page: served on this machine only, to whoever knows the address, and never a part of the run."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import parse_qs, urlsplit

from verifolio.cli.output import complain, say
from verifolio.errors import InputError, VerifolioError
from verifolio.plugin.account import Account, Asked

from .content import as_plain, page_content
from .live import live_facts
from .look import is_store
from .page import make_page
from .sources import read_accounts

LOOPBACK = "127.0.0.1"  # nobody on another machine can connect
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"


class View:
    """The content of the page, read anew only when the store has changed."""

    def __init__(self, store: Path, asked: Asked) -> None:
        self.store, self.asked = store, asked
        self._lock = threading.Lock()
        self._stamp: tuple[object, ...] = ()
        self._accounts: list[Account] = []

    def content(self) -> dict[str, Any]:
        """What the page shows now."""
        with self._lock:
            stamp = tuple(_stamp(self.store.with_name(self.store.name + end)) for end in ("", "-wal"))
            if stamp != self._stamp or not self._accounts:
                self._accounts, self._stamp = self._read(), stamp
            shown: dict[str, Any] = page_content(self._accounts, live=live_facts(self.store))
            return dict(as_plain(shown))

    def _read(self) -> list[Account]:
        """A run that has only begun has no results yet."""
        try:
            return read_accounts([self.store], self.asked)
        except VerifolioError:
            return []


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


class Handler(BaseHTTPRequestHandler):
    """Answers GET for the page and its news, with the token and from this machine; refuses everything else."""

    view: ClassVar[View]
    token: ClassVar[str]
    server_version, sys_version = "verifolio", ""
    timeout = 30  # a connection that says nothing ends

    def do_GET(self) -> None:
        try:
            parts = urlsplit(self.path)
            given = parse_qs(parts.query)
        except ValueError:  # such as http://[
            self._send(400, TEXT, b"this is no address\n")
            return
        if not self._local() or not hmac.compare_digest(
            given.get("token", [""])[0].encode(), self.token.encode()
        ):
            self._send(403, TEXT, b"the address that `verifolio watch` printed has a token in it; use that\n")
        elif parts.path == "/":
            source = f"/data.json?token={self.token}"
            self._send(200, HTML, make_page(self.view.content(), source).encode(errors="replace"))
        elif parts.path == "/data.json":
            self._news(given.get("known", [""])[0])
        else:
            self._send(404, TEXT, b"there are / and /data.json\n")

    def _local(self) -> bool:
        """Whether the browser asked for this machine: a stranger's name that leads here is refused."""
        port = cast(ThreadingHTTPServer, self.server).server_port
        return self.headers.get("Host", "") in (f"{LOOPBACK}:{port}", f"localhost:{port}")

    def _news(self, known: str) -> None:
        content = self.view.content()
        live = content.get("live") or {}
        settled = content | {"made": "", "live": live | {"now": 0} if live.get("alive") else live}
        body = json.dumps(content, allow_nan=False).encode()
        mark = hashlib.sha256(json.dumps(settled).encode()).hexdigest()[:16]
        if known == mark and not live.get("alive"):
            self._send(204, JSON, b"")
        else:
            self._send(200, JSON, body, mark)

    def _refuse(self) -> None:
        self._send(405, TEXT, b"only GET\n")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def _send(self, code: int, kind: str, body: bytes, mark: str = "") -> None:
        self.send_response(code)
        for name, value in (HEADERS | ({"ETag": mark} if mark else {})).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are nobody's business: the address has the token in it."""


class Server(ThreadingHTTPServer):
    """A thread for each request, and no word about browsers that leave before they have their answer."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def make_server(store: Path, asked: Asked, port: int = 0) -> tuple[ThreadingHTTPServer, str]:
    """The server, not started yet, and the address to open."""
    if not store.is_file() or not is_store(store):
        remedy = "start the run with --store first"
        raise InputError(str(store), "the store of a run", "no such store", remedy)
    token = secrets.token_urlsafe(24)
    handler = type("OwnHandler", (Handler,), {"view": View(store, asked), "token": token})
    try:
        server = Server((LOOPBACK, port), handler)
    except OSError as error:
        raise InputError("--port", "a free port", f"{port}: {error.strerror}", "use 0 for any") from None
    return server, f"http://{LOOPBACK}:{server.server_address[1]}/?token={token}"


def serve(store: Path, asked: Asked, port: int) -> None:
    """Serve until Ctrl-C."""
    server, address = make_server(store, asked, port)
    say(address)
    complain(f"watching {store}; Ctrl-C stops the view, not the run ({time.strftime('%H:%M:%S')})")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        complain("the view has ended; the run is not touched")
    finally:
        server.server_close()
