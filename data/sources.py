"""The table of what can be downloaded, sources.json, and SHA256SUMS, what a folder was found to hold."""
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional

TABLE = Path(__file__).resolve().parent / "sources.json"
SUMS = "SHA256SUMS"


class SourceError(Exception):
    pass


@dataclass
class File:
    """A file of a source. size (bytes) and sha256 are None where nobody here knows them; about is a size
    that is not exact."""
    name: str
    urls: List[str]
    size: Optional[int] = None
    sha256: Optional[str] = None
    about: int = 0

    @property
    def weight(self):
        return self.about if self.size is None else self.size


@dataclass
class Source:
    """A set of data or a model: what it is, under which licence, its files, and how many bytes they make
    once they are unpacked."""
    name: str
    about: str
    licence: str
    citation: str
    unpacked: int
    files: List[File] = field(default_factory=list)
    shards: int = 0  # files for training that there are, where they can be had one by one
    shape: Optional[List[int]] = None  # of a model: layers, channels


def _shards(entry, wanted):
    """The validation file, and the first `wanted` files for training. The last of all has what is left over
    and hence no known size."""
    count = entry["count"]
    names = [entry["validation"]] + [entry["training"].format(i) for i in range(1, (wanted or count) + 1)]
    last = entry["training"].format(count)
    return [File(name, [entry["url"] + name], None if name == last else entry["size"], entry["sha256"].get(name),
                 entry["size"]) for name in names]


def load_source(name, table=TABLE, shards=None):
    """The source of that name; of one in shards, the first `shards` files for training alone."""
    try:
        entries = json.loads(Path(table).read_text())
        entry = entries.get(name)
        if entry is None:
            raise SourceError(f"there is no source '{name}'; there are: {', '.join(entries)}")
        in_shards = entry.get("shards")
        files = _shards(in_shards, shards) if in_shards else [
            File(f["name"], f["urls"], f.get("size"), f.get("sha256"), f.get("size_about", 0)) for f in entry["files"]]
        return Source(name, entry["about"], entry["licence"], entry["citation"], entry["unpacked"], files,
                      in_shards["count"] if in_shards else 0, entry.get("shape"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{table}: not a table of sources ({type(error).__name__}: {error})") from None


def names(table=TABLE):
    try:
        return list(json.loads(Path(table).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise SourceError(f"{table}: not a table of sources ({error})") from None


class Sums:
    """SHA256SUMS of a folder, in the form of `sha256sum -c`: the checksum of each file that was downloaded.
    What nobody knew before is fixed by the first download."""

    def __init__(self, folder):
        self.path = Path(folder) / SUMS
        self.of = {}
        if self.path.exists():
            for number, line in enumerate(self.path.read_text(errors="replace").splitlines(), 1):
                match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
                if not match:
                    raise SourceError(f"{self.path}:{number}: not a line of sha256sum; repair or remove the file")
                self.of[match[2]] = match[1]

    def record(self, name, sha256):
        if self.of.get(name) == sha256:
            return
        self.of[name] = sha256
        replace_text(self.path, "".join(f"{value}  {key}\n" for key, value in sorted(self.of.items())))


def replace_text(path, text):
    """Writes a small file whole or not at all."""
    fresh = Path(f"{path}.tmp")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
