"""Runs a module's test functions. Prints `ok NAME`, `FAILED NAME: reason` or `[skipped] NAME: reason` for each,
then `N passed, N failed, N skipped`: the format that scripts/run_tests.sh reads.
"""
import fnmatch
import os
import signal
import subprocess
import tempfile
from pathlib import Path


class Skip(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def expect_error(kind, phrase, call):
    try:
        call()
    except kind as error:
        expect(phrase in str(error), f"'{phrase}' is not in: {error}")
        return
    raise AssertionError(f"no {kind.__name__} with '{phrase}'")


def run_unprivileged(command, folder):
    """Runs a command in `folder`, which it may then read, as a user for whom file permissions count: root ignores
    them.
    """
    folder.chmod(0o755)
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        return subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=300,
                              **user)
    except (PermissionError, subprocess.SubprocessError) as error:
        raise Skip(f"the program cannot be run without root's rights: {error}")


def let_programs_receive_signals():
    """Gives all programs that are started from now on the usual reaction to stop signals. `nohup` and background jobs of
    scripts let programs ignore some, and runs that tests stop would never end. This process still ignores them.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # exec replaces a handler by the default action


def run_tests(tests, arguments, pattern="*"):
    """Runs the functions named test_* in `tests`, a module's globals(), if `pattern` matches the name after
    test_. Calls each as test(*arguments(new folder)). Returns the exit code.
    """
    let_programs_receive_signals()
    passed = failed = skipped = 0
    for name, test in list(tests.items()):
        if not name.startswith("test_") or not fnmatch.fnmatch(name[5:], pattern):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(*arguments(Path(folder)))
                passed += 1
                print(f"ok {name[5:]}", flush=True)
            except Skip as reason:
                skipped += 1
                print(f"[skipped] {name[5:]}: {reason}", flush=True)
            except Exception as error:  # an exception fails this test; the next ones still run
                failed += 1
                print(f"FAILED {name[5:]}: {type(error).__name__}: {error}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
