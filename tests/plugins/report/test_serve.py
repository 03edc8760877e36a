"""The live view is for this machine and for whoever has the address: everything else is refused."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from verifolio import Asked, InputError
from verifolio.plugins.report.live import forecast
from verifolio.plugins.report.serve import make_server
from verifolio.storage.invocation import Invocation
from verifolio.storage.runs import Recorder, RunLedger


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    store = tmp_path / "live.db"
    with Recorder(store, Invocation("measure", {}, "verifolio measure")):
        server, address = make_server(store, Asked())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address
        server.shutdown()
        server.server_close()


def ask(
    address: str, path: str = "", method: str = "GET", host: str = ""
) -> tuple[int, bytes, dict[str, str]]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 0, timeout=30)
    connection.request(method, path or f"/?{parts.query}", headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


def test_the_page_needs_its_token(address: str) -> None:
    status, body, headers = ask(address)
    assert status == 200 and b"<!doctype html>" in body
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    for path in ("/", "/?token=", "/?token=wrong", "/data.json", "/data.json?token=x", "/../etc/passwd"):
        assert ask(address, path)[0] == 403, path
    query = urlsplit(address).query
    assert ask(address, f"/other?{query}")[0] == 404
    assert json.loads(ask(address, f"/data.json?{query}")[1])["live"]["alive"]


def test_only_get_and_only_by_our_own_name(address: str) -> None:
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"):
        assert ask(address, method=method)[0] == 405, method
    port = urlsplit(address).port
    assert ask(address, host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1"):
        assert ask(address, host=host)[0] == 403, host


def test_nobody_else_can_connect(address: str) -> None:
    """It listens on the loopback address, not on all of them."""
    port = urlsplit(address).port or 0
    with socket.socket() as probe, pytest.raises(OSError):
        probe.settimeout(5)
        probe.connect(("127.0.0.2", port))  # another address of this machine


def send(address: str, request: bytes) -> socket.socket:
    """A connection on which these bytes were sent."""
    connection = socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), timeout=30)
    connection.sendall(request)
    return connection


def test_what_is_no_address_is_answered(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It ended with a traceback on the terminal of the view, and without an answer."""
    for target in ("http://[/", "//[?token=x"):
        with send(address, f"GET {target} HTTP/1.0\r\n\r\n".encode()) as connection:
            assert connection.recv(1000).startswith((b"HTTP/1.0 400", b"HTTP/1.0 403"))
    assert capsys.readouterr().err == ""


def test_a_browser_that_leaves_is_no_news(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every page that was loaded anew while it was read left a traceback on the terminal of the view."""
    parts = urlsplit(address)
    for _ in range(5):
        with send(address, f"GET /?{parts.query} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode()) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    assert ask(address)[0] == 200  # after the others
    time.sleep(0.5)
    assert capsys.readouterr().err == ""


def test_many_that_say_nothing_do_not_keep_others_out(address: str) -> None:
    silent = [send(address, b"GET /?") for _ in range(50)]
    assert ask(address)[0] == 200
    for connection in silent:
        connection.close()


def test_every_view_has_another_token(tmp_path: Path) -> None:
    with RunLedger(tmp_path / "s.db"):
        found = set()
        for _ in range(3):
            server, address = make_server(tmp_path / "s.db", Asked())
            server.server_close()
            found.add(urlsplit(address).query)
    assert len(found) == 3 and all(len(q) > 30 for q in found)
    with pytest.raises(InputError, match="no such store"):
        make_server(tmp_path / "none.db", Asked())


@pytest.mark.usefixtures("interruptible")
def test_stopping_the_view_does_not_touch_the_run(tmp_path: Path) -> None:
    store = tmp_path / "live.db"
    with Recorder(store, Invocation("measure", {}, "verifolio measure")) as run:
        view = subprocess.Popen(
            [sys.executable, "-P", "-m", "verifolio", "watch", str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert view.stdout is not None and view.stderr is not None
        assert ask(view.stdout.readline().strip())[0] == 200
        view.send_signal(signal.SIGINT)
        assert view.wait(30) == 0
        assert "the run is not touched" in view.stderr.read()
        run._write()
        with RunLedger(store) as ledger:
            assert ledger.runs()[0].alive()


def test_the_forecast_leaves_out_what_was_known_before(tmp_path: Path) -> None:
    with (
        Recorder(tmp_path / "r.db", Invocation("x", {}, "x")) as recorder,
        RunLedger(tmp_path / "r.db") as ledger,
    ):
        recorder.progress(91, 100)  # 90 were known
        recorder._write()
        (run,) = ledger.runs()
        assert forecast(run, time.time()) is None  # one says too little
        recorder.progress(95, 100)
        recorder._write()
        (run,) = ledger.runs()
    assert forecast(run, run.started + 50) == pytest.approx(50.0)
