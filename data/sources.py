"""sources.json, the table of downloads, and SHA256SUMS, the checksums of a folder's files."""
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
    """A file of a source. size (bytes) and sha256 are None if they are unknown; about is a size that is not exact."""
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
    """A data set or a model: description, licence, files, and their size in bytes after unpacking."""
    name: str
    about: str
    licence: str
    citation: str
    unpacked: int
    files: List[File] = field(default_factory=list)
    shards: int = 0  # all files for training, if they can be downloaded one by one; otherwise 0
    shape: Optional[List[int]] = None  # layers and channels of a model


def _shards(entry, limit):
    """The validation file, and the first `limit` files for training (None: all). The last file of all has the
    remaining tokens and hence no known size."""
    count = entry["count"]
    names = [entry["validation"]] + [entry["training"].format(i) for i in range(1, (limit or count) + 1)]
    last = entry["training"].format(count)
    return [File(name, [entry["url"] + name], None if name == last else entry["size"], entry["sha256"].get(name),
                 entry["size"]) for name in names]


def load_source(name, table=TABLE, shards=None):
    """The source of that name. If it is in shards, only the first `shards` files for training are included
    (None: all)."""
    try:
        entries = json.loads(Path(table).read_text())
        entry = entries.get(name)
        if entry is None:
            raise SourceError(f"unknown source '{name}'; allowed: {', '.join(entries)}")
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
    """SHA256SUMS of a folder, in the format of `sha256sum -c`: the checksum of each downloaded file. The first
    download determines a checksum that was unknown before."""

    def __init__(self, folder):
        self.path = Path(folder) / SUMS
        self.checksums = {}
        if self.path.exists():
            for number, line in enumerate(self.path.read_text(errors="replace").splitlines(), 1):
                match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
                if not match:
                    raise SourceError(f"{self.path}:{number}: not a line of sha256sum; repair or remove the file")
                self.checksums[match[2]] = match[1]

    def record(self, name, sha256):
        if self.checksums.get(name) == sha256:
            return
        self.checksums[name] = sha256
        replace_text(self.path, "".join(f"{value}  {key}\n" for key, value in sorted(self.checksums.items())))


def replace_text(path, text):
    """Writes a small file atomically."""
    temporary = Path(f"{path}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
