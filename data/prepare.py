#!/usr/bin/env python3
"""Downloads a data set, checks it, and converts it to the files that train_gpt2 reads.

    data/prepare.py --list                          what there is
    data/prepare.py tinyshakespeare                 into datasets/tinyshakespeare
    data/prepare.py openwebtext --dry-run           what it would download, how much, under which licence
    data/prepare.py openwebtext --tokenizer DIR     and its tokens, by ./tokenize
    data/prepare.py fineweb10b --shards 10          a tenth of it

Run again after an interruption, it resumes; run again after the end, it does nothing. A file that is in the
folder already, copied from elsewhere, is checked and used. data/README.md describes the data sets.
Exit code 0: everything is there; 1: it is not, and stderr has the reason; 2: the command line is wrong;
130: interrupted.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import convert
import download
import sources
from download import DownloadError
from terminal import format_size, number
from unpack import ArchiveError

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = "prepared.json"
EXPECTED = (sources.SourceError, ArchiveError, convert.ConvertError)


class UsageError(Exception):
    """The command line requests something impossible: exit code 2."""


def expected_sha256(file, sums):
    return file.sha256 or sums.checksums.get(file.name)


def is_downloaded(file, folder, sums):
    """Whether the file was downloaded and checked before, and still has its size."""
    path = folder / file.name
    return path.is_file() and file.name in sums.checksums and file.size in (None, path.stat().st_size)


def obtain(file, folder, sums, options, inspect=lambda path: None):
    """Ensures that the file is in the folder and checked, and that SHA256SUMS has its checksum. inspect(path)
    throws if the content is wrong: a downloaded file is then removed. Returns the path."""
    path = folder / file.name
    expected = expected_sha256(file, sums)
    if is_downloaded(file, folder, sums) and not options.verify:
        return path
    if path.exists():
        digest = download.sha256_of(path, lambda done: None)
        size = path.stat().st_size
        if expected not in (None, digest) or file.size not in (None, size):
            raise DownloadError(f"{path}: {size} bytes with the SHA-256 {digest} are not the known "
                                f"{file.name}; remove it to download it again")
    else:
        download.fetch(file.urls, path, file.size, expected, options.base_url, options.attempts, options.timeout,
                       options.pause)
        digest = expected or download.sha256_of(path)
        try:
            inspect(path)
        except Exception:
            path.unlink()
            raise
    if expected is None:
        print(f"{path}: no checksum was known; {sources.SUMS} now has that of the downloaded file", file=sys.stderr)
    sums.record(file.name, digest)
    return path


def describe(source, folder, options, sums):
    """Prints the report of --dry-run."""
    print(f"{source.name}: {source.about}\nlicence: {source.licence}\ncite: {source.citation}\ninto: {folder}")
    for file in source.files:
        size = f"{file.size} bytes" if file.size is not None else f"about {format_size(file.weight)}"
        known = expected_sha256(file, sums)
        state = "downloaded" if is_downloaded(file, folder, sums) else "missing"
        print(f"  {file.name}: {size}, {state}, SHA-256 {known or 'unknown: set by the first download'}")
        for url in file.urls:
            print(f"    {download.rebase(url, options.base_url)}")
    missing = missing_bytes(source, folder, sums)
    print(f"to download: {format_size(missing)}; to write: about {format_size(source.unpacked)}; free: "
          f"{format_size(shutil.disk_usage(existing_parent(folder)).free)}")


def existing_parent(folder):
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def missing_bytes(source, folder, sums):
    """Bytes still to download: excludes the files that exist, and the downloaded parts of others."""
    def local_size(name):
        return (folder / name).stat().st_size if (folder / name).is_file() else 0
    return sum(max(0, file.weight - local_size(file.name) - local_size(f"{file.name}.part")) for file in source.files
               if not is_downloaded(file, folder, sums))


def required_space(source, folder, sums, options):
    """Bytes that a run will write. The output of a --limit is small and existing output is on the disk already,
    so neither counts."""
    writes_little = options.limit or (folder / MANIFEST).exists()
    return missing_bytes(source, folder, sums) + (0 if writes_little else source.unpacked)


def read_manifest(folder):
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return manifest if isinstance(manifest, dict) else {}
    except (OSError, ValueError):
        return {}


def is_prepared(manifest, folder, checksums, limit):
    """Whether the manifest's files were made from these downloads, with this limit, and have their sizes."""
    try:
        return (manifest["made_from"] == checksums and manifest["limit"] == limit and bool(manifest["files"])
                and all((folder / name).stat().st_size == file["bytes"] for name, file in manifest["files"].items()))
    except (OSError, KeyError, TypeError, AttributeError):
        return False


def convert_all(source, folder, paths, options, sums):
    """Converts the downloads to texts, unless that is done already. Returns the manifest."""
    checksums = {name: sums.checksums[name] for name in paths}
    previous = read_manifest(folder)
    if is_prepared(previous, folder, checksums, options.limit):
        return previous
    with convert.Outputs(folder) as out:
        convert.CONVERTERS[source.name](paths, out, options.limit)
        files = out.finish()
    # Remove the files of an earlier run that this one did not make: they would pass for a part of the data set.
    tokens = [file for stem, entry in previous.get("tokens", {}).items()
              for file in [*entry["files"], f"{stem}.json"]]
    for name in [*previous.get("files", {}), *tokens]:
        if name not in files:
            (folder / Path(name).name).unlink(missing_ok=True)
    manifest = {"source": source.name, "licence": source.licence, "citation": source.citation, "limit": options.limit,
                "made_from": checksums, "files": files, "tokens": {}}
    sources.replace_text(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return manifest


def tokenize(folder, manifest, options):
    """Ensures that each text has token files next to it, written by ./tokenize with the requested tokenizer."""
    directory = str(Path(options.tokenizer).absolute())
    for name in manifest["files"]:
        text = Path(name)
        outputs = manifest["tokens"].get(text.stem, {})
        if outputs.get("tokenizer") == directory and has_files(folder, outputs["files"]):
            continue
        command = [options.tokenize, "--tokenizer", options.tokenizer, str(folder / name),
                   "-o", str(folder / f"{text.stem}.bin")]
        command += ["--field", "text"] if text.suffix == ".jsonl" else []
        command += ["--force"] if outputs else []
        print(" ".join(command), file=sys.stderr)
        code = subprocess.run(command).returncode
        if code != 0:
            raise DownloadError(f"{options.tokenize} failed on {folder / name} (exit code {code}); the text is complete: "
                                "fix the error and run the command again")
        manifest["tokens"][text.stem] = {"tokenizer": directory, **token_files(folder, f"{text.stem}.json")}
        sources.replace_text(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")


def has_files(folder, files):
    """Whether all these files, name -> bytes, exist with these sizes."""
    return bool(files) and all((folder / name).is_file() and (folder / name).stat().st_size == size
                               for name, size in files.items())


def token_files(folder, summary):
    """The token files that ./tokenize made, from its summary, and the number of tokens in them."""
    try:
        output = json.loads((folder / summary).read_text())["outputs"][0]
        names = [Path(file["file"]).name for file in output["files"]]
        return {"tokens": output["tokens"], "files": {name: (folder / name).stat().st_size for name in names}}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DownloadError(f"{folder / summary} is not a summary of ./tokenize: {error}")


def as_source(folder, tokens):
    """Token files as an argument of --train: one file, or a pattern."""
    names = list(tokens["files"])
    return f"{folder / names[0]}" if len(names) == 1 else f"'{folder}/{names[0].rsplit('_', 1)[0]}_*.bin'"


def report(source, folder, manifest, options):
    for name, file in manifest["files"].items():
        print(f"{folder / name}: {file['documents']} documents, {format_size(file['bytes'])}")
    for name, tokens in manifest["tokens"].items():
        print(f"{folder / name}: {tokens['tokens']} tokens in {len(tokens['files'])} files")
    train_file = next((name for name in ("train.txt", "train.jsonl") if name in manifest["files"]), None)
    if train_file is None:
        print(f"next: ./train_gpt2 --init-from MODEL --tokenizer DIR --steps 0 --eval "
              f"{source.name}:{folder / next(iter(manifest['files']))}")
    elif "train" in manifest["tokens"]:
        train, val = (as_source(folder, manifest["tokens"][name]) for name in ("train", "val"))
        print(f"next: ./train_gpt2 --train {train} --val {val} --tokenizer {manifest['tokens']['train']['tokenizer']}")
    elif train_file == "train.txt":
        print(f"next: ./train_gpt2 --train {folder}/train.txt --val {folder}/val.txt")
    else:
        print(f"next: data/prepare.py {source.name} --out {folder} --tokenizer DIR")


def prepare_tokens(source, folder, options, sums):
    """Prepares a source that is tokenized already: its files are used as they are."""
    total = 0
    for file in source.files:
        path = obtain(file, folder, sums, options, convert.require_token_file)
        total += convert.require_token_file(path)
    print(f"{folder}: {len(source.files)} files, {total} tokens\nnext: ./train_gpt2 --train '{folder}/fineweb_train_*.bin' "
          f"--val {folder}/{source.files[0].name} --tokenizer DIR")


def check(options, source):
    """Throws UsageError for options that do not fit the source or each other."""
    if source.name not in convert.CONVERTERS and not source.shards:
        raise UsageError(f"{source.name} is not a data set")
    if source.shards and (options.limit or options.tokenizer):
        raise UsageError(f"{source.name} consists of tokens: use --shards N for a part of it, and no --tokenizer")
    if options.shards and not 1 <= options.shards <= source.shards:
        raise UsageError(f"--shards {options.shards}: {source.name} has " +
                         (f"1 to {source.shards}" if source.shards else "no shards; use --limit N for a part of it"))
    if options.tokenizer and source.name == "hellaswag":
        raise UsageError("--tokenizer: hellaswag consists of questions, which an evaluation reads as text")
    if options.tokenizer and not options.dry_run:
        if not Path(options.tokenizer).is_dir():
            raise UsageError(f"--tokenizer {options.tokenizer}: no such folder; run scripts/get_gpt2.sh to download "
                             "GPT-2's")
        if not os.access(options.tokenize, os.X_OK):
            raise UsageError(f"--tokenizer needs {options.tokenize}, which is missing; run make first")


def add_download_flags(add):
    add("--dry-run", action="store_true", help="only report what would be downloaded")
    add("--verify", action="store_true", help="recompute the checksums of existing files")
    download.add_flags(add)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("name", nargs="?", help="name of a data set; --list prints them")
    add("--list", action="store_true", help="list the data sets and exit")
    add("--out", metavar="DIR", help="folder to write [datasets/NAME]")
    add("--limit", type=number(int, 1, 10 ** 9), metavar="N", help="number of documents of each text [all]")
    add("--shards", type=number(int, 1, 10 ** 6), metavar="N",
        help="fineweb10b: number of files of 100 million tokens [103]")
    add("--tokenizer", metavar="DIR", help="also write .bin files, with the vocabulary in this folder")
    add_download_flags(add)
    add("--sources", default=str(sources.TABLE), metavar="FILE", help="table of sources [data/sources.json]")
    add("--tokenize", default=str(ROOT / "tokenize"), metavar="PROGRAM",
        help="program that writes the .bin files [./tokenize]")
    options = parser.parse_args()
    if not options.list and options.name is None:
        parser.error("give the name of a data set; --list prints them")
    return options


def main():
    options = arguments()
    if options.list:
        for name in sources.names(options.sources):
            source = sources.load_source(name, options.sources)
            print(f"{name:16} {format_size(sum(file.weight for file in source.files)):>9}  {source.about}")
        return
    try:
        source = sources.load_source(options.name, options.sources, options.shards)
        check(options, source)
    except (sources.SourceError, UsageError) as error:
        print(f"prepare.py: {error}", file=sys.stderr)
        sys.exit(2)
    folder = Path(options.out or Path("datasets") / source.name)
    sums = sources.Sums(folder)
    if options.dry_run:
        describe(source, folder, options, sums)
        return
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{source.name}: licence: {source.licence}", file=sys.stderr)
    download.require_space(folder, required_space(source, folder, sums, options))
    if source.shards:
        prepare_tokens(source, folder, options, sums)
        return
    paths = {file.name: obtain(file, folder, sums, options) for file in source.files}
    manifest = convert_all(source, folder, paths, options, sums)
    if options.tokenizer:
        tokenize(folder, manifest, options)
    report(source, folder, manifest, options)


if __name__ == "__main__":
    download.run(main, EXPECTED)
