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

LARGEST_DOCUMENT = 64 << 20  # bytes


class ArchiveError(Exception):
    pass


@contextlib.contextmanager
def _explained(path):
    """Converts the exceptions of the libraries to an ArchiveError."""
    try:
        yield
    except EOFError:
        raise ArchiveError(f"{path}: the archive ends too early; remove it and download it again") from None
    except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, RuntimeError,
            NotImplementedError) as error:
        raise ArchiveError(f"{path}: the archive is damaged ({error}); remove it and download it again") from None


class _Limited(io.RawIOBase):
    """Reads from `stream`, and throws once more than `limit` bytes are read."""

    def __init__(self, stream, path, limit):
        self.stream, self.path, self.left, self.limit = stream, path, limit, limit

    def readable(self):
        return True

    def readinto(self, buffer):
        block = self.stream.read(len(buffer))
        self.left -= len(block)
        if self.left < 0:
            raise ArchiveError(f"{self.path}: unpacks to more than {self.limit} bytes, which it should not")
        buffer[:len(block)] = block
        return len(block)


def _require_harmless(name, path):
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if "\0" in name or ".." in parts or name.startswith(("/", "\\")) or ":" in name[:2]:
        raise ArchiveError(f"{path}: holds a file named {name!r}, which points out of its folder: not an archive to trust")


@contextlib.contextmanager
def zip_member(path, name, limit):
    """Opens the only member of a zip whose base name is `name`, as a binary stream of at most `limit` bytes.
    Reading it to its end checks its CRC."""
    with _explained(path), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            _require_harmless(info.filename, path)
        found = [info for info in archive.infolist() if PurePosixPath(info.filename).name == name and not info.is_dir()]
        if len(found) != 1:
            raise ArchiveError(f"{path}: holds {len(found)} files named {name}, not one")
        with archive.open(found[0]) as member:
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
    with _explained(path), lzma.open(path) as whole:
        outer = io.BufferedReader(_Limited(whole, path, 2 * limit), 1 << 20)
        spent = 0
        for name, packed, _ in _tar_files(outer, path):
            if not name.endswith(".xz"):
                continue
            with lzma.open(packed) as inner:
                for text_name, text, size in _tar_files(inner, path):
                    if not text_name.endswith(".txt"):
                        continue
                    spent += size
                    if size > LARGEST_DOCUMENT or spent > limit:
                        raise ArchiveError(f"{path}: {text_name} makes more than {min(limit, LARGEST_DOCUMENT)} bytes, "
                                           "which it should not")
                    yield text.read()
