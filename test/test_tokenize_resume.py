#!/usr/bin/env python3
"""Tests that the files of tokenize do not depend on the number of threads, on kills or on a full disk.

    python3 test/test_tokenize_resume.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import resource
import signal
import subprocess
import sys
import time

from runner import Skip, expect
from test_programs import run_program_tests
from test_tokenize_program import output_files, random_documents, run_bytes, write_json_lines


def test_files_do_not_depend_on_the_number_of_threads(program):
    write_json_lines(program.folder / "x.jsonl", random_documents(2000))
    (program.folder / "y.txt").write_text("".join(random_documents(12000, 2)))  # one long document
    first = None
    for threads in (1, 2, 3, 16):
        run_bytes(program, "x.jsonl", "y.txt", "-o", "a.bin", "--dedup", "near", "--shard-tokens", 1000000,
                  "--val", "a-val.bin", "--val-fraction", 0.1, "--threads", threads, "--force")
        files = output_files(program, "a")
        expect(len(files) > 8, list(files))
        first = first or files
        expect(files == first, f"{threads} threads: another result")


JOB = ["x.jsonl", "-o", "a.bin", "--dedup", "near", "--shard-tokens", "10000", "--val", "a-val.bin",
       "--val-fraction", "0.3"]


def uninterrupted(program):
    """Runs JOB without interruption and removes its files. Returns {file name: content} of them."""
    write_json_lines(program.folder / "x.jsonl", random_documents(2500))
    run_bytes(program, *JOB)
    files = output_files(program, "a")
    expect(len(files) > 80, f"{len(files)} files")
    remove(program, files)
    return files


def remove(program, names):
    for name in names:
        (program.folder / name).unlink()


def files_done(program):
    """The number of files that the unfinished run has completed."""
    try:
        return (program.folder / "a.bin.progress").read_bytes().count(b"\n") - 1
    except FileNotFoundError:
        return 0


def kill_after(program, files, job, piped):
    """Runs a job with the bytes `piped` on stdin, and kills it once `files` files are complete. Returns False if it
    ended before that.
    """
    running = subprocess.Popen([str(program.binary), "--tokenizer", "bytes", *job], cwd=program.folder,
                               stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    running.stdin.write(piped)
    running.stdin.close()
    while running.poll() is None and files_done(program) < files:
        pass
    running.send_signal(signal.SIGKILL)
    return running.wait() == -signal.SIGKILL and not (program.folder / "a.json").exists()


def leave_unfinished(program, kills, job=JOB, piped=b""):
    """Runs a job and kills it `kills` times, each time some files later."""
    for _ in range(20 * kills):
        done = files_done(program)
        if kill_after(program, done + 1 + done // 2, job, piped) and files_done(program) > done:
            kills -= 1
        if kills == 0:
            return
        if (program.folder / "a.json").exists():  # the run ended before the kill
            remove(program, output_files(program, "a"))
    raise Skip("the machine is too busy to kill a run in time")


def test_a_killed_run_resumes_to_the_same_files(program):
    expected = uninterrupted(program)
    for kills in (1, 4):
        leave_unfinished(program, kills)
        finished = [json.loads(line)["file"] for line in
                    (program.folder / "a.bin.progress").read_text().splitlines()[1:]]
        before = {name: (program.folder / name).stat().st_ino for name in finished}
        done = run_bytes(program, *JOB)
        expect("resuming after " in done.stderr, done.stderr)
        files = output_files(program, "a")
        expect(files == expected, f"{set(files) ^ set(expected)} or a content differs")
        for name, inode in before.items():
            expect((program.folder / name).stat().st_ino == inode, f"{name} was written again")
        remove(program, expected)


def test_a_run_killed_before_its_first_file_changes_no_result(program):
    expected = uninterrupted(program)
    for wait in (0.001, 0.005, 0.02, 0.05):
        running = subprocess.Popen([str(program.binary), "--tokenizer", "bytes", *JOB], cwd=program.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        running.kill()
        running.wait()
        if (program.folder / "a.json").exists():
            remove(program, output_files(program, "a"))
    run_bytes(program, *JOB)
    expect(output_files(program, "a") == expected, "another result")


def test_a_file_that_a_killed_run_did_not_record_is_written_again(program):
    expected = uninterrupted(program)
    leave_unfinished(program, 1)
    progress = program.folder / "a.bin.progress"
    header = progress.read_text().splitlines()[0] + "\n"
    progress.write_text(header)
    program.fails("--tokenizer", "bytes", *JOB, "--field", "n", phrases=["a_000000.bin already exists", "--force"])
    progress.write_text(header)
    run_bytes(program, *JOB)
    expect(output_files(program, "a") == expected, "another result")


def test_only_the_same_job_resumes(program):
    expected = uninterrupted(program)
    leave_unfinished(program, 2)
    for change, phrase in ((["--shard-tokens", "30000"], "settings.shard_tokens was 10000 and is 30000 now"),
                           (["--dedup", "exact"], 'settings.dedup was "near" and is "exact" now'),
                           (["--field", "n"], 'settings.field was "text" and is "n" now')):
        command = JOB[:]
        if change[0] in command:
            command[command.index(change[0]) + 1] = change[1]
        else:
            command += change
        program.fails("--tokenizer", "bytes", *command, phrases=["a.bin.progress", phrase, "--force"])
    inputs = (program.folder / "x.jsonl").read_text()
    (program.folder / "x.jsonl").write_text(inputs.replace("changed", "CHANGED", 1))
    program.fails("--tokenizer", "bytes", *JOB, phrases=["inputs[0].xxh64"])
    (program.folder / "x.jsonl").write_text(inputs)
    shard = next(program.folder.glob("a*_000000.bin"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"\1")
    program.fails("--tokenizer", "bytes", *JOB, phrases=[f"{shard.name} has changed since"])
    shard.unlink()
    program.fails("--tokenizer", "bytes", *JOB, phrases=[shard.name, "No such file"])
    (program.folder / "a.bin.progress").write_text("{}\n{}\n")
    program.fails("--tokenizer", "bytes", *JOB, phrases=["a.bin.progress", "--force"])
    run_bytes(program, *JOB, "--force")
    expect(output_files(program, "a") == expected, "--force does not start from the beginning")


def test_only_a_pipe_of_the_same_bytes_resumes(program):
    expected = uninterrupted(program)
    content = (program.folder / "x.jsonl").read_bytes()
    job = ["--format", "jsonl", *JOB[1:]]
    leave_unfinished(program, 2, ["-", *job], content)
    command = [str(program.binary), "--tokenizer", "bytes", *job]
    other = subprocess.run(command + ["-"], input=content.replace(b"changed", b"CHANGED", 1), cwd=program.folder,
                           capture_output=True, timeout=300)
    expect(other.returncode == 1 and b"inputs[0].xxh64" in other.stderr, other.stderr)
    with subprocess.Popen(["cat", "x.jsonl"], cwd=program.folder, stdout=subprocess.PIPE) as cat:
        pipe = cat.stdout.fileno()  # as <(cat x.jsonl) in a shell: not the descriptor of the killed run
        done = subprocess.run(command + [f"/dev/fd/{pipe}"], cwd=program.folder, pass_fds=[pipe], capture_output=True,
                              timeout=300)
    expect(done.returncode == 0 and b"resuming after" in done.stderr, done.stderr)
    note = json.loads((program.folder / "a.json").read_text())
    expect(note["inputs"][0]["file"] == "pipe" and note["inputs"][0]["bytes"] == len(content), note["inputs"])
    files = output_files(program, "a")
    expect(set(files) == set(expected), set(files) ^ set(expected))
    expect(all(files[name] == expected[name] for name in expected if name != "a.json"), "another result")


def test_two_processes_cannot_write_the_same_files(program):
    write_json_lines(program.folder / "x.jsonl", random_documents(2500))
    running = subprocess.Popen([str(program.binary), "--tokenizer", "bytes", *JOB], cwd=program.folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while running.poll() is None and files_done(program) < 1:
            pass
        running.send_signal(signal.SIGSTOP)
        if running.poll() is not None:
            raise Skip("the first run ended too early")
        program.fails("--tokenizer", "bytes", *JOB, phrases=["another process is writing a.bin"])
        program.fails("--tokenizer", "bytes", *JOB, "--force", phrases=["another process is writing a.bin"])
        running.send_signal(signal.SIGCONT)
        expect(running.wait() == 0, "the first run failed")
    finally:
        running.kill()
        running.wait()


def test_a_file_size_limit_loses_nothing(program):
    expected = uninterrupted(program)
    leave_unfinished(program, 2)
    before = output_files(program, "a")
    # Python ignores SIGXFSZ, and restore_signals=False lets its child inherit that.
    done = subprocess.run([str(program.binary), "--tokenizer", "bytes", *JOB], cwd=program.folder, text=True,
                          capture_output=True, restore_signals=False, timeout=300,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (15000, 15000)))
    expect(done.returncode == 1 and "File too large" in done.stderr and "ulimit -f" in done.stderr, done.stderr)
    after = output_files(program, "a")
    expect(all(after.get(name) == content for name, content in before.items() if ".tmp-" not in name),
           "existing files are missing")
    expect(not any(".tmp-" in name for name in after), "a temporary file was left")
    run_bytes(program, *JOB)
    expect(output_files(program, "a") == expected, "another result")


def test_a_full_disk_loses_nothing(program):
    """The disk is a real tmpfs of 1 MB, which grows before the second run."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        raise Skip("no tmpfs can be mounted here")
    expected = uninterrupted(program)
    (program.folder / "disk").mkdir()
    job = " ".join([str(program.binary), "--tokenizer bytes", *JOB]).replace("a.bin", "disk/a.bin").replace(
        "a-val.bin", "disk/a-val.bin")
    script = f"""mount -t tmpfs -o size=1m none disk || exit 99
        {job} && exit 1
        ls disk
        mount -o remount,size=100m disk && {job} && rm -rf copy && cp -r disk copy"""
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], cwd=program.folder, capture_output=True, text=True,
                          timeout=300)
    if done.returncode == 99:
        raise Skip("no tmpfs can be mounted here")
    expect(done.returncode == 0 and "No space left on device" in done.stderr, done.stderr)
    expect("a_000003.bin" in done.stdout and "tmp-" not in done.stdout, done.stdout)
    expect("resuming after" in done.stderr, done.stderr)
    files = {p.name: p.read_bytes() for p in (program.folder / "copy").iterdir()}
    expect(all(files[name] == content for name, content in expected.items() if name != "a.json"), "another result")
    expect(set(files) == set(expected), set(files) ^ set(expected))


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "tokenize"))
