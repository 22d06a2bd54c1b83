#!/usr/bin/env python3
"""Downloads that survive broken and stalled connections and wrong content.

    data/download.py URL... PATH [--size BYTES] [--sha256 HEX] [--base-url URL]

Several URLs are mirrors of one file, tried in order. Bytes go to PATH.part, which a later call resumes
(Range, with If-Range if the server names a version). PATH appears only when it is complete and its checksum
is right. Proxies are taken from the environment (https_proxy, no_proxy, ...).
Exit code 0: PATH is there; 1: it is not, and stderr has the reason; 2: the command line is wrong;
130: interrupted, run again to resume.
"""
import argparse
import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
import standard_output  # noqa: E402
from terminal import Progress, format_size, number

BASE_URL = "DATA_BASE_URL"       # environment variable that replaces every URL's scheme and host
CHUNK = 1 << 20                  # bytes
RESERVE = 64 << 20               # bytes of a disk that stay free
MAX_PAUSE = 60                   # seconds
RETRY_CODES = {408, 425, 429, 500, 502, 503, 504}


class DownloadError(Exception):
    """A file could not be downloaded. The text names it, the reason and the remedy."""


class _TemporaryFailure(Exception):
    """A temporary failure: try the same URL again, after `pause` seconds if the server sent a number."""

    def __init__(self, reason, pause=None):
        super().__init__(reason)
        self.pause = pause


class _PermanentFailure(Exception):
    """A permanent failure: try the next mirror."""


def sha256_of(path, on_progress=None):
    """The file's SHA-256 in hex. Calls `on_progress(bytes so far)` while it reads."""
    digest = hashlib.sha256()
    done = 0
    with open(path, "rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
            done += len(block)
            if on_progress:
                on_progress(done)
    return digest.hexdigest()


def require_space(folder, size):
    """Throws DownloadError unless `size` bytes and a reserve are free on the disk of `folder`."""
    free = shutil.disk_usage(folder).free
    if size + RESERVE > free:
        raise DownloadError(f"{folder}: needs {format_size(size)} and a reserve of {format_size(RESERVE)}, but only "
                            f"{format_size(free)} are free; free some space or choose another folder")


def rebase(url, base):
    """The URL with the scheme and host of `base` (and below its path); unchanged if base is empty."""
    if not base:
        return url
    parts = urllib.parse.urlsplit(url)
    return base.rstrip("/") + parts.path + (f"?{parts.query}" if parts.query else "")


class _Part:
    """PATH.part, and PATH.part.json, which records its URL and version. The part is locked: a second program
    that downloads the same file fails."""

    def __init__(self, path):
        self.path = Path(f"{path}.part")
        self.notes = Path(f"{path}.part.json")
        try:
            self.file = open(self.path, "ab", buffering=0)
        except OSError as error:
            raise DownloadError(f"{self.path}: {error.strerror}") from None
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The other program may have finished, and renamed the file, after it was opened here.
            if not os.path.samestat(os.fstat(self.file.fileno()), os.stat(self.path)):
                raise OSError
        except OSError:
            self.file.close()
            raise DownloadError(f"{self.path}: another program is downloading this file; wait for it to end") from None
        self.source = {}
        with contextlib.suppress(OSError, ValueError):
            notes = json.loads(self.notes.read_text())
            self.source = notes if isinstance(notes, dict) else {}

    @property
    def size(self):
        return os.fstat(self.file.fileno()).st_size

    def restart(self):
        self.file.truncate(0)
        self.source = {}

    def set_source(self, url, validator):
        self.source = {"url": url, "validator": validator}
        self.notes.write_text(json.dumps(self.source))

    def append(self, block):
        view = memoryview(block)
        try:
            while view:
                view = view[self.file.write(view):]
        except OSError as error:
            raise DownloadError(f"{self.path}: {error.strerror} after {format_size(self.size)}, which are "
                                "kept; free some space and run the command again") from None

    def rename_to(self, path):
        os.fsync(self.file.fileno())
        os.replace(self.path, path)
        self.notes.unlink(missing_ok=True)
        folder = os.open(Path(path).parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self):
        if self.size == 0:
            self.path.unlink(missing_ok=True)
            self.notes.unlink(missing_ok=True)
        self.file.close()


def _validator(headers):
    """The version of the file for If-Range: a strong ETag, otherwise the time of its last change."""
    etag = headers.get("ETag", "")
    if etag.startswith('"'):
        return etag
    return headers.get("Last-Modified", "")


def _content_range(text):
    """(first byte or None, size of the whole file or None) of a Content-Range header."""
    try:
        unit, rest = text.split()
        span, whole = rest.split("/")
        first = None if span == "*" else int(span.split("-")[0])
        return (first, None if whole == "*" else int(whole)) if unit == "bytes" else (None, None)
    except (ValueError, AttributeError):
        return None, None


def _retry_after(headers):
    try:
        return min(max(float(headers.get("Retry-After", "")), 0.0), MAX_PAUSE)
    except ValueError:
        return None


def _open(request, timeout):
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return error
        reason = f"the host responded with {error.code} {error.reason}"
        error.close()
        if error.code in RETRY_CODES:
            raise _TemporaryFailure(reason, _retry_after(error.headers)) from None
        raise _PermanentFailure(reason) from None
    except urllib.error.URLError as error:
        raise _TemporaryFailure(f"no connection: {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _TemporaryFailure(f"the connection broke: {error or type(error).__name__}") from None


def _request(part, url, sha256, timeout):
    """Requests the missing bytes. Returns (response, offset of its first byte in the file, size of the whole
    file or None); the response is None if nothing is missing."""
    headers = {"User-Agent": "llmc-data/1.0", "Accept-Encoding": "identity"}
    validator = part.source.get("validator", "") if part.source.get("url") == url else ""
    # Without a version or a checksum it is unknown whether two pieces are from the same file.
    offset = part.size if validator or sha256 else 0
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator:
            headers["If-Range"] = validator
    response = _open(urllib.request.Request(url, headers=headers), timeout)
    first, whole = _content_range(response.headers.get("Content-Range"))
    if response.status == 416 and whole == offset:
        response.close()
        return None, offset, whole
    if response.status == 416 or (response.status == 206 and first != offset):
        response.close()
        part.restart()
        raise _TemporaryFailure("the host's file does not match the part; restarting the download", 0)
    length = response.headers.get("Content-Length", "")
    length = int(length) if length.isdigit() else None
    if response.status != 206:
        return response, 0, length
    return response, offset, whole if whole is not None or length is None else offset + length


def _receive(part, response, whole, progress):
    """Appends the body to the part. Throws _TemporaryFailure if it ends before `whole` bytes, or stalls."""
    received = part.size
    while True:
        try:
            block = response.read1(CHUNK)  # read() would wait for a full block, and lose it in a stall
        except socket.timeout:
            raise _TemporaryFailure("the connection stalled") from None
        except (OSError, http.client.HTTPException) as error:
            raise _TemporaryFailure(f"the connection broke: {type(error).__name__}") from None
        if not block:
            break
        part.append(block)
        received += len(block)
        progress.show(received, whole)
    if whole is not None and received < whole:
        raise _TemporaryFailure(f"the connection ended after {format_size(received)} of {format_size(whole)}")


def _attempt(part, url, size, sha256, timeout, progress):
    if sha256 is not None and size is not None and part.size == size:
        return
    response, first, whole = _request(part, url, sha256, timeout)
    if response is None:
        return
    with response:
        if size is not None and whole is not None and whole != size:
            raise _PermanentFailure(f"the host's file has {whole} bytes, not {size}: it is a different file")
        if whole is None and size is None and sha256 is None:
            raise _PermanentFailure("the host does not state the length, and no size or checksum is known, so an "
                                    "incomplete file could not be detected")
        if first == 0:
            part.restart()
        part.set_source(url, _validator(response.headers))
        require_space(part.path.parent, (whole or size or 0) - part.size)
        _receive(part, response, whole or size, progress)


def _check(part, size, sha256, progress):
    """Empties the part and throws _PermanentFailure if its size or checksum is wrong."""
    size_received = part.size
    if size is not None and size_received != size:
        part.restart()
        raise _PermanentFailure(f"{size_received} bytes arrived, not {size}; they were removed")
    if sha256 is None:
        return
    digest = sha256_of(part.path, lambda done: progress.show(done, size_received, "checked"))
    if digest != sha256:
        part.restart()
        raise _PermanentFailure(f"the {size_received} bytes that arrived have the SHA-256 {digest}, not {sha256}; "
                                "they were removed")


def _from_mirror(part, url, size, sha256, attempts, timeout, pause, progress):
    """Downloads the complete, checked file to `part`, or throws _PermanentFailure. Counts the failures since the part
    last grew beyond its greatest length so far, because a long download may break often."""
    failures, longest, resumed = 0, part.size, part.size > 0
    while True:
        try:
            _attempt(part, url, size, sha256, timeout, progress)
            _check(part, size, sha256, progress)
            return
        except _PermanentFailure:
            # The pieces may be of two versions: try again, in one piece.
            if not resumed or part.size > 0:
                raise
            resumed = False
            progress.note("the pieces are not one version of the file; restarting the download")
        except _TemporaryFailure as failure:
            resumed = resumed or part.size > 0
            if part.size > longest:
                longest, failures = part.size, 0
            failures += 1
            if failures >= attempts:
                raise _PermanentFailure(f"{failure} ({attempts} attempts without a new byte)") from None
            wait = failure.pause if failure.pause is not None else min(pause * 2 ** (failures - 1), MAX_PAUSE)
            progress.note(f"{failure}; retrying in {wait:.3g} s from {format_size(part.size)}")
            time.sleep(wait)


def fetch(urls, path, size=None, sha256=None, base=None, attempts=5, timeout=30.0, pause=1.0, out=None):
    """Downloads one file to `path`, whose folder must exist, from the first of `urls` that has it.

    size (bytes) and sha256 (hex), if known, must be the file's. `base` replaces scheme and host. timeout:
    seconds without a byte; pause: seconds before the second attempt, doubled for each further one. An
    existing `path` is replaced. Returns the number of bytes. Throws DownloadError.
    """
    path = Path(path)
    progress = Progress(path.name, out)
    part = _Part(path)
    try:
        failures = []
        for url in urls:
            url = rebase(url, base)
            try:
                _from_mirror(part, url, size, sha256, attempts, timeout, pause, progress)
                part.rename_to(path)
                return path.stat().st_size
            except _PermanentFailure as failure:
                failures.append(f"{url}: {failure}")
            except ValueError as error:
                raise DownloadError(f"'{url}' is not a URL: {error}") from None
        raise DownloadError(f"{path} could not be downloaded\n  " + "\n  ".join(failures))
    finally:
        progress.clear()
        part.close()


def add_flags(add):
    """Adds the flags of every command that downloads; add: a parser's add_argument."""
    add("--base-url", default=os.environ.get(BASE_URL), metavar="URL",
        help=f"mirror that replaces scheme and host of every address [${BASE_URL}]")
    add("--timeout", type=number(float, 0.01, 86400), default=30.0, metavar="S",
        help="retry after this many seconds without a byte [30]")
    add("--attempts", type=number(int, 1, 10 ** 6), default=5, metavar="N",
        help="give up after this many failures in a row [5]")
    add("--pause", type=number(float, 0, 86400), default=1.0, metavar="S",
        help="seconds before the second attempt; doubled for each further one [1]")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", metavar="URL", nargs="+", help="address of the file; further ones are mirrors")
    parser.add_argument("path", metavar="PATH", help="the file to write")
    parser.add_argument("--size", type=number(int, 0, 1 << 60), metavar="BYTES", help="required size of the file [any]")
    parser.add_argument("--sha256", type=str.lower, metavar="HEX", help="required SHA-256 of the file [any]")
    add_flags(parser.add_argument)
    options = parser.parse_args()
    if options.sha256 and not re.fullmatch("[0-9a-f]{64}", options.sha256):
        parser.error(f"--sha256 {options.sha256}: a SHA-256 has 64 hexadecimal digits")
    Path(options.path).parent.mkdir(parents=True, exist_ok=True)
    fetch(options.urls, options.path, options.size, options.sha256, options.base_url, options.attempts,
          options.timeout, options.pause)


def run(program, expected=()):
    """Calls program(); on an exception exits with the codes above. expected: further exceptions whose text is a
    message for the user."""
    def main():
        try:
            program()
        except KeyboardInterrupt:
            print("interrupted; run the same command again to resume", file=sys.stderr)
            sys.exit(130)
        except (DownloadError, OSError, *expected) as error:
            print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
            sys.exit(1)
    standard_output.run(main)


if __name__ == "__main__":
    run(main)
