"""Reads archives from the internet as streams.

Nothing is ever written under a name from an archive: callers request the files that they know and write them
to their own paths. Names that point out of a folder are rejected anyway, and so is more data than a limit,
whatever sizes the archive states. Every failure is an ArchiveError that names the archive.
"""
import contextlib
import io
import lzma
import tarfile
import zipfile
import zlib
from pathlib import PurePosixPath

MAX_DOCUMENT_BYTES = 64 << 20


class ArchiveError(Exception):
    pass


@contextlib.contextmanager
def _archive_errors(path):
    """Converts the exceptions of the libraries to an ArchiveError."""
    try:
        yield
    except EOFError:
        raise ArchiveError(f"{path}: the archive ends too early; remove it and download it again") from None
    except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, RuntimeError,
            NotImplementedError) as error:
        raise ArchiveError(f"{path}: the archive is damaged ({error}); remove it and download it again") from None


class _Limited(io.RawIOBase):
    """Reads from `stream`, and throws if more than `limit` bytes are read."""

    def __init__(self, stream, path, limit):
        self.stream, self.path, self.remaining, self.limit = stream, path, limit, limit

    def readable(self):
        return True

    def readinto(self, buffer):
        block = self.stream.read(len(buffer))
        self.remaining -= len(block)
        if self.remaining < 0:
            raise ArchiveError(f"{self.path}: unpacks to more than {self.limit} bytes, the limit; do not use this "
                               "archive")
        buffer[:len(block)] = block
        return len(block)


def _require_harmless(name, path):
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if "\0" in name or ".." in parts or name.startswith(("/", "\\")) or ":" in name[:2]:
        raise ArchiveError(f"{path}: contains a file named {name!r}, which points out of its folder; do not use this "
                           "archive")


@contextlib.contextmanager
def zip_member(path, name, limit):
    """Opens the only member of a zip whose base name is `name`, as a binary stream of at most `limit` bytes.
    Reading it to its end checks its CRC."""
    with _archive_errors(path), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            _require_harmless(info.filename, path)
        members = [info for info in archive.infolist() if PurePosixPath(info.filename).name == name and not info.is_dir()]
        if len(members) != 1:
            raise ArchiveError(f"{path}: contains {len(members)} files named {name}; expected one")
        with archive.open(members[0]) as member:
            yield io.BufferedReader(_Limited(member, path, limit), 1 << 20)


def _tar_files(stream, path):
    """Yields (name, stream, size) of the regular files of a tar, which is read once from front to end."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for info in archive:
            _require_harmless(info.name, path)
            if info.isfile():
                yield info.name, archive.extractfile(info), info.size
            archive.members = []  # otherwise all entries stay in memory, which can be millions
    # A tar marks its own end. Only the bytes after it show that the stream around it is complete.
    while stream.read(1 << 20):
        pass


def texts_in_nested_tars(path, limit):
    """Yields the contents (bytes) of all .txt files in the .xz-compressed tars in one .xz-compressed tar, which
    is OpenWebText's format, in the archive's order. limit: maximum bytes of all of them together."""
    with _archive_errors(path), lzma.open(path) as file:
        outer = io.BufferedReader(_Limited(file, path, 2 * limit), 1 << 20)
        total_bytes = 0
        for name, packed, _ in _tar_files(outer, path):
            if not name.endswith(".xz"):
                continue
            with lzma.open(packed) as inner:
                for text_name, text, size in _tar_files(inner, path):
                    if not text_name.endswith(".txt"):
                        continue
                    total_bytes += size
                    if size > MAX_DOCUMENT_BYTES or total_bytes > limit:
                        raise ArchiveError(f"{path}: the texts up to {text_name} have more than "
                                           f"{min(limit, MAX_DOCUMENT_BYTES)} bytes, the limit; do not use this archive")
                    yield text.read()
