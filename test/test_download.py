#!/usr/bin/env python3
"""Tests data/download.py with a local server that cuts, stalls and sends wrong lengths. Needs no network.

    python3 test/test_download.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import hashlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from http_host import Host, Page, announce, cut, other_range, slow, stall, status
from runner import expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "data"))
import download  # noqa: E402

BODY = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
FIRST, SECOND = {"ETag": '"first"'}, {"ETag": '"second"'}
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != download.BASE_URL}


def sha256(body):
    return hashlib.sha256(body).hexdigest()


def fetch(host, path, name="/f", **settings):
    urls = settings.pop("urls", None) or [host.url + name]
    # Only a server that stalls reaches the time limit.
    return download.fetch(urls, path, **{"timeout": 30, "pause": 0.01, "out": io.StringIO(), **settings})


def refusal(host, path, *parts, **settings):
    """Expects a DownloadError that has all of `parts`, and no file at `path`. Returns its text."""
    try:
        fetch(host, path, **settings)
    except download.DownloadError as error:
        expect(all(part in str(error) for part in parts), f"'{error}' does not name {parts}")
        expect(not path.exists(), "a wrong file has the final name")
        return str(error)
    raise AssertionError("no DownloadError was thrown")


def expect_file(path, body):
    expect(path.read_bytes() == body, f"{path.name} is not what was served")
    expect(sorted(p.name for p in path.parent.iterdir()) == [path.name], f"remaining files: {list(path.parent.iterdir())}")


def ranges(host):
    """The Range header of each request, None for a request of the whole file."""
    return [headers.get("Range") for _, headers in host.requests]


def test_a_file_is_downloaded_completely(folder):
    with Host({"/f": Page(BODY)}) as host:
        expect(fetch(host, folder / "f", size=len(BODY), sha256=sha256(BODY)) == len(BODY), "wrong size")
        expect_file(folder / "f", BODY)
        (folder / "f").write_bytes(b"old")
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)


def test_a_broken_download_resumes_at_its_last_byte(folder):
    with Host({"/f": Page(BODY, [cut(100_000), cut(50_000)], headers=FIRST)}) as host:
        fetch(host, folder / "f", attempts=2)  # every attempt makes progress: no failures in a row
        expect_file(folder / "f", BODY)
        expect(ranges(host) == [None, "bytes=100000-", "bytes=150000-"], f"requested {ranges(host)}")
        expect(host.requests[1][1].get("If-Range") == '"first"', "the request does not name the version")


def test_a_host_without_ranges_is_read_from_the_start(folder):
    with Host({"/f": Page(BODY, [cut(100_000), cut(200_000)], ranges=False, headers=FIRST)}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
    with Host({"/f": Page(BODY, [cut(100_000)] * 9, ranges=False)}) as host:
        refusal(host, folder / "f2", "ended after", "3 attempts", attempts=3)
        expect(len(host.requests) == 3, "the same bytes again are no progress")


def test_a_file_that_changed_is_not_joined_to_the_old_one(folder):
    page = Page(BODY, [cut(100_000)], headers=FIRST)
    with Host({"/f": page}) as host:
        refusal(host, folder / "f", attempts=1)
        page.body, page.headers = OTHER, SECOND
        fetch(host, folder / "f")
        expect_file(folder / "f", OTHER)
        expect(ranges(host)[-1] == "bytes=100000-", "the second run did not try to resume")


def test_without_a_version_pieces_are_joined_only_with_a_checksum(folder):
    with Host({"/f": Page(BODY, [cut(100_000)])}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        expect(ranges(host) == [None, None], "pieces of unknown versions were joined")
    page = Page(BODY, [cut(100_000)])
    with Host({"/f": page}) as host:
        refusal(host, folder / "g", attempts=1, sha256=sha256(OTHER))
        page.body = OTHER
        fetch(host, folder / "g", sha256=sha256(OTHER))
        expect((folder / "g").read_bytes() == OTHER, "two versions were joined")
        expect(ranges(host)[1:] == ["bytes=100000-", None], "a wrong combination is not downloaded again in one piece")


def test_a_stalled_download_is_resumed(folder):
    with Host({"/f": Page(BODY, [stall(100_000), stall(0)], headers=FIRST)}) as host:
        fetch(host, folder / "f", timeout=1)
        expect_file(folder / "f", BODY)
        expect(ranges(host) == [None, "bytes=100000-", "bytes=100000-"], f"requested {ranges(host)}")


def test_a_slow_connection_is_kept(folder):
    with Host({"/f": Page(BODY[:800], [slow(100, 0.3)])}) as host:  # 2.4 s in total; the limit is 2 s without a byte
        fetch(host, folder / "f", timeout=2)
        expect_file(folder / "f", BODY[:800])
        expect(len(host.requests) == 1, "the connection to a slow host was closed")


def test_wrong_lengths_are_errors(folder):
    with Host({"/f": Page(BODY, [announce(10)] * 9, ranges=False)}) as host:
        refusal(host, folder / "f", "ended after 300.0 kB", attempts=2)
        expect((folder / "f.part").stat().st_size == len(BODY), "the received bytes were removed")
    with Host({"/f": Page(BODY)}) as host:
        refusal(host, folder / "g", "300000 bytes, not 300001", size=len(BODY) + 1)
        refusal(host, folder / "g", "300000 bytes, not 299999", size=len(BODY) - 1)
    with Host({"/f": Page(BODY, [announce(None)] * 2)}) as host:
        refusal(host, folder / "h", "does not state the length")
        fetch(host, folder / "h", size=len(BODY))
        expect((folder / "h").read_bytes() == BODY, "a response without a length")


def test_a_wrong_checksum_leaves_nothing(folder):
    with Host({"/f": Page(BODY)}) as host:
        refusal(host, folder / "f", sha256(BODY), sha256(OTHER), "/f", sha256=sha256(OTHER))
        expect(len(host.requests) == 1, "a complete file with a wrong checksum was requested again")
        expect(list(folder.iterdir()) == [], f"remaining files: {list(folder.iterdir())}")


def test_a_mirror_replaces_a_host_that_fails(folder):
    with Host({"/bad": Page(OTHER), "/cut": Page(BODY, [cut(100_000)] + [status(503)] * 9), "/f": Page(BODY)}) as host:
        urls = [host.url + path for path in ("/none", "/bad", "/cut", "/f")]
        fetch(host, folder / "f", urls=urls, sha256=sha256(BODY), attempts=2)
        expect_file(folder / "f", BODY)
        expect(ranges(host)[-1] == "bytes=100000-", "with a checksum, a mirror does not resume where another one stopped")
        text = refusal(host, folder / "g", "404", urls=[host.url + "/none", host.url + "/nor"])
        expect("/none:" in text and "/nor:" in text, "not every mirror is named")


def test_only_temporary_http_errors_are_retried(folder):
    for code, requests in ((404, 1), (403, 1), (500, 3), (503, 3)):
        with Host({"/f": Page(BODY, [status(code)] * 9)}) as host:
            refusal(host, folder / "f", f"{code} ", attempts=3)
            expect(len(host.requests) == requests, f"{code}: {len(host.requests)} requests")
    with Host({"/f": Page(BODY, [status(503, {"Retry-After": "0"}), status(429)])}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)


def test_redirects_are_followed(folder):
    with Host({"/f": Page(b"", [status(302, {"Location": "/g"})] * 2), "/g": Page(BODY, [cut(10_000)], headers=FIRST),
               "/loop": Page(b"", [status(302, {"Location": "/loop"})] * 99)}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        refusal(host, folder / "g", "302", urls=[host.url + "/loop"])


def test_parts_that_do_not_match_the_file_are_replaced(folder):
    part, notes = folder / "f.part", folder / "f.part.json"
    with Host({"/f": Page(BODY, headers=FIRST)}) as host:
        part.write_bytes(OTHER + OTHER)  # longer than the file; the notes name the same version
        notes.write_text(json.dumps({"url": host.url + "/f", "validator": '"first"'}))
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        part.write_bytes(OTHER[:1000])
        notes.write_text("{not json")
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        part.write_bytes(BODY)  # complete: killed before the rename
        before = len(host.requests)
        fetch(host, folder / "f", size=len(BODY), sha256=sha256(BODY))
        expect_file(folder / "f", BODY)
        expect(len(host.requests) == before, "a complete file is requested again")
    with Host({"/f": Page(BODY, [cut(1000), other_range(500)], headers=FIRST)}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)


def test_an_unreachable_host_is_an_error(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/f"
        refusal(None, folder / "f", "no connection", "2 attempts", urls=[url], attempts=2)
    refusal(None, folder / "f", "is not a URL", urls=["nonsense"])
    expect(list(folder.iterdir()) == [], "files remain")


def test_a_full_disk_is_an_error_and_loses_nothing(folder):
    with Host({"/f": Page(BODY, headers=FIRST)}) as host:
        command = f"ulimit -f 100; exec {sys.executable} {ROOT}/data/download.py {host.url}/f {folder}/f"
        run = subprocess.run(["bash", "-c", command], env=ENVIRONMENT, capture_output=True, text=True)
        expect(run.returncode == 1 and "f.part: File too large" in run.stderr, run.stderr)
        expect(len(run.stderr.splitlines()) == 1, f"not one line: {run.stderr}")
        expect((folder / "f.part").stat().st_size == 102_400, "the received bytes are not kept")
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        expect(ranges(host)[-1] == "bytes=102400-", "the download was not resumed")
        disk_usage, download.shutil.disk_usage = download.shutil.disk_usage, lambda _: type("Usage", (), {"free": 10 ** 6})
        try:
            refusal(host, folder / "g", "only 1.0 MB are free")
        finally:
            download.shutil.disk_usage = disk_usage


def test_interrupted_and_killed_downloads_resume(folder):
    for number, expected in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        with Host({"/f": Page(BODY, [slow(20_000, 0.1)], headers=FIRST)}) as host:
            command = [sys.executable, f"{ROOT}/data/download.py", f"{host.url}/f", f"{folder}/f"]
            with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
                part, deadline = folder / "f.part", time.monotonic() + 100
                while not (part.exists() and part.stat().st_size > 0) and time.monotonic() < deadline:
                    time.sleep(0.01)
                process.send_signal(number)
                messages = process.stderr.read()
            expect(process.returncode == expected, f"exit code {process.returncode}: {messages}")
            expect("Traceback" not in messages, messages)
            size = part.stat().st_size
            expect(0 < size < len(BODY) and not (folder / "f").exists(), "there is no part of the file")
            run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
            expect(run.returncode == 0, run.stderr)
            expect_file(folder / "f", BODY)
            expect(ranges(host)[-1] == f"bytes={size}-", "the download was not resumed")
            (folder / "f").unlink()


def test_two_downloads_of_one_file_are_an_error(folder):
    with Host({"/f": Page(BODY)}) as host:
        part = download._Part(folder / "f")
        refusal(host, folder / "f", "another program")
        part.close()
        fetch(host, folder / "f")


def test_proxies_and_mirrors_are_used(folder):
    with Host({"/a/f": Page(BODY)}) as host:
        command = [sys.executable, f"{ROOT}/data/download.py", "http://host.invalid/a/f?x=1", f"{folder}/f"]
        run = subprocess.run(command, env={**ENVIRONMENT, "http_proxy": host.url}, capture_output=True, text=True)
        expect(run.returncode == 0, run.stderr)
        expect(host.requests[-1][0] == "http://host.invalid/a/f?x=1", "the proxy got no request")
        run = subprocess.run(command, env={**ENVIRONMENT, download.BASE_URL: host.url + "/"}, capture_output=True, text=True)
        expect(run.returncode == 0, run.stderr)
        expect(host.requests[-1][0] == "/a/f?x=1", "the mirror got no request")


def test_exit_codes_of_the_command_line(folder):
    def run(*arguments):
        return subprocess.run([sys.executable, f"{ROOT}/data/download.py", *arguments], env=ENVIRONMENT,
                              capture_output=True, text=True)
    for wrong in ((), ("--size", "x"), ("--timeout", "0"), ("--attempts", "nan"), ("--sha256", "12")):
        expect(run(*wrong, *(["u", "p"] if wrong else [])).returncode == 2, f"{wrong} is not a usage error")
    (folder / "file").write_text("")
    failed = run("http://127.0.0.1:1/f", f"{folder}/file/f", "--attempts", "1")
    expect(failed.returncode == 1 and "Traceback" not in failed.stderr, failed.stderr)


if __name__ == "__main__":
    os.environ.update({"no_proxy": "*"})
    sys.exit(run_tests(globals(), lambda folder: (folder,), *sys.argv[1:]))
