"""A browser for the tests of pages: chromium over its debugging pipe, with the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)
PATIENCE = 60.0  # seconds for one command; the machine of the tests may be busy


class Browser:
    """One tab: `open` a page, `run` JavaScript in it, take pictures; `errors` are those of the console."""

    def __init__(self, profile: Path) -> None:
        reads, self._write = os.pipe()
        self._read, writes = os.pipe()
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]

        def place() -> None:  # the browser reads commands from 3 and writes to 4
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        # both ends are above 4 here, so that neither is overwritten by the other
        reads, writes = (_above(fd) for fd in (reads, writes))
        self._process = subprocess.Popen(
            command, preexec_fn=place, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(reads)
        os.close(writes)
        self._buffer, self._number, self._session = b"", 0, ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        target = next(
            t
            for t in self._until(
                lambda: [t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
            )
        )
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call("Performance.enable", timeDomain="threadTicks")

    def open(self, url: str, width: int = 1280, height: int = 900) -> float:
        """Open a page at a size; gives the seconds until it was loaded."""
        self.errors.clear()
        self.requests.clear()
        self._size(width, height)
        self._loaded = False
        began = time.monotonic()
        self._call("Page.navigate", url=url)
        while not self._loaded:
            self._event()
        return time.monotonic() - began

    def busy(self) -> float:
        """Seconds of processor that the page has taken since it was opened, however busy the machine is."""
        told = self._call("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in told if m["name"] == "TaskDuration"))

    def _size(self, width: int, height: int) -> None:
        phone = width < 600
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def dark(self, dark: bool = True) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        said = self._call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise AssertionError(said["exceptionDetails"].get("exception", {}).get("description", said))
        return said["result"].get("value")

    def wait(self, code: str) -> Any:
        """The value of an expression as soon as it is true."""
        return self._until(lambda: self.run(code))

    def picture(self, path: Path, whole: bool = True) -> None:
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def paper(self, path: Path) -> None:
        """The page as it is printed."""
        made = self._call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        os.close(self._read)
        os.close(self._write)

    def _until(self, ask: Callable[[], Any]) -> Any:
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE:
            found = ask()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError("it did not come about in time")

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._event()
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def _event(self) -> dict[str, Any]:
        """The next message; those about errors, requests and loading are noted."""
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method, given = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.errors.append(given["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
            self.errors.append(str(given["args"]))
        elif method == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.errors.append(given["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not given["request"]["url"].startswith("data:"):
            self.requests.append(given["request"]["url"])
        return message


def _above(fd: int) -> int:
    """The same file under a number that is out of the way."""
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD, 10)
    os.close(fd)
    return moved


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()
