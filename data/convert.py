"""Converts downloads to texts: one function for each source, (paths by name, Outputs, limit).

limit: how many documents to use of each input file, None for all. Input that does not have the source's
format throws a ConvertError that names the file, and the line if there is one.
"""
import csv
import io
import json
import os
import re
import struct
from pathlib import Path

from terminal import Progress
from unpack import texts_in_nested_tars, zip_member

# One document in this many, the first included, goes to the validation set of a source that has none.
VALIDATION_INTERVAL = {"openwebtext": 2000, "all_the_news": 200}
MAX_FIELD_BYTES = 64 << 20  # of CSV
TOKEN_HEADER = struct.Struct("<256i")
TOKEN_MAGIC, TOKEN_VERSION = 20240520, 1  # llm.c's token files, see llmc/io/data/token_file.h


class ConvertError(Exception):
    pass


class Outputs:
    """The output files in a folder. They have temporary names until `finish`; leaving the `with` block without
    it removes them."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.files = {}
        self.documents = {}
        self.num_written = 0
        self.progress = Progress(self.folder.name)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.progress.clear()
        for name, file in self.files.items():
            file.close()
            self._temporary(name).unlink(missing_ok=True)

    def _temporary(self, name):
        return self.folder / f"{name}.tmp"

    def _file(self, name):
        if name not in self.files:
            self.files[name] = open(self._temporary(name), "w", encoding="utf-8", newline="\n")
            self.documents[name] = 0
        return self.files[name]

    def text(self, name, text, documents=1):
        self._file(name).write(text)
        self.documents[name] += documents
        self.num_written += len(text)
        self.progress.show(self.num_written, None, "wrote")

    def row(self, name, row):
        self.text(name, json.dumps(row, ensure_ascii=False) + "\n")

    def finish(self):
        """Gives the files their final names. Returns {name: {documents, bytes}}."""
        if not self.files or not all(self.documents.values()):
            raise ConvertError(f"{self.folder}: the downloaded files contain no document")
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        files = {}
        for name in list(self.files):
            self._temporary(name).replace(self.folder / name)
            del self.files[name]
            files[name] = {"documents": self.documents[name], "bytes": (self.folder / name).stat().st_size}
        return files


def _only(paths):
    (path,) = paths.values()
    return path


def _split(source, index):
    return "val.jsonl" if index % VALIDATION_INTERVAL[source] == 0 else "train.jsonl"


def tinyshakespeare(paths, out, limit):
    """The first nine tenths, up to the end of a speech, are for training; the rest is for validation."""
    path = _only(paths)
    try:
        speeches = path.read_text(encoding="utf-8").split("\n\n")
    except UnicodeDecodeError as error:
        raise ConvertError(f"{path}: not UTF-8 at byte {error.start}") from None
    speeches = [speech + "\n\n" for speech in speeches[:-1]] + [last for last in speeches[-1:] if last]
    speeches = speeches[:limit]
    total, num_characters = sum(map(len, speeches)), 0
    for speech in speeches:
        out.text("train.txt" if num_characters < 0.9 * total else "val.txt", speech)
        num_characters += len(speech)


def wikitext(paths, out, limit):
    """The three texts as published; a document is an article, from its heading on."""
    path = _only(paths)
    for part, name in (("train", "train.txt"), ("valid", "val.txt"), ("test", "test.txt")):
        with zip_member(path, f"wiki.{part}.raw", 1 << 30) as raw:
            _articles(io.TextIOWrapper(raw, encoding="utf-8", newline="\n"), out, name, limit, path)


def _articles(lines, out, name, limit, path):
    articles, previous = 0, "\n"
    try:
        for line in lines:
            # An article begins with " = Title = " after an empty line; the headings of sections have more
            # equals signs.
            if previous.strip() == "" and re.match(r" = [^=].* = \n?$", line):
                if articles == limit:
                    break
                articles += 1
                out.text(name, "", 1)
            out.text(name, line, 0)
            previous = line
    except UnicodeDecodeError as error:
        raise ConvertError(f"{path}: {name} is not UTF-8 at byte {error.start} of a block") from None


def openwebtext(paths, out, limit):
    """One page per line. Three or more line ends in a row, which the authors' scraper left, become two."""
    index = 0
    for text in texts_in_nested_tars(_only(paths), 60 << 30):
        if index == limit:
            break
        text = re.sub(r"\n{3,}", "\n\n", text.decode("utf-8", "replace")).strip()
        if text:
            out.row(_split("openwebtext", index), {"text": text})
            index += 1


def _rows(path, limit):
    with open(path, encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, 1):
                if number - 1 == limit:
                    break
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
                if not isinstance(row, dict):
                    raise ConvertError(f"{path}:{number}: not a JSON object")
                yield number, row
        except UnicodeDecodeError as error:
            raise ConvertError(f"{path}: not UTF-8 at byte {error.start} of a block") from None


def lambada(paths, out, limit):
    """One passage per line; its last word is the one to predict."""
    path = _only(paths)
    for number, row in _rows(path, limit):
        if not isinstance(row.get("text"), str) or len(row["text"].split()) < 2:
            raise ConvertError(f"{path}:{number}: not a passage; a passage is an object with a 'text' of two words "
                               "or more")
        out.row("test.jsonl", {"text": row["text"]})


def hellaswag(paths, out, limit):
    """One question per line: ctx, four endings, label (0 to 3), and the article or film it is from."""
    path = _only(paths)
    for number, row in _rows(path, limit):
        endings, label = row.get("endings"), row.get("label")
        if not (isinstance(row.get("ctx"), str) and isinstance(endings, list) and len(endings) == 4
                and all(isinstance(e, str) for e in endings) and type(label) is int and 0 <= label < 4):
            raise ConvertError(f"{path}:{number}: not a question; a question is an object with 'ctx', four "
                               "'endings' and a 'label' from 0 to 3")
        out.row("val.jsonl", {key: row[key] for key in ("ind", "activity_label", "ctx", "endings", "label", "source_id")
                              if key in row})


def all_the_news(paths, out, limit):
    """One article per line: title, empty line, text. Rows without a text are skipped."""
    path = _only(paths)
    csv.field_size_limit(MAX_FIELD_BYTES)
    with zip_member(path, "all-the-news-2-1.csv", 40 << 30) as raw:
        lines = (line.replace("\0", "") for line in io.TextIOWrapper(raw, encoding="utf-8", errors="replace", newline=""))
        reader = csv.DictReader(lines)
        missing = {"title", "article"} - set(reader.fieldnames or ())
        if missing:
            raise ConvertError(f"{path}: the CSV's first line has no column {' and no '.join(sorted(missing))}")
        index = 0
        try:
            for row in reader:
                if index == limit:
                    break
                title, article = ((row[key] or "").strip() for key in ("title", "article"))
                if article:
                    out.row(_split("all_the_news", index), {"text": f"{title}\n\n{article}" if title else article})
                    index += 1
        except csv.Error as error:
            raise ConvertError(f"{path}: line {reader.line_num} of the CSV: {error}") from None


def require_token_file(path):
    """Throws ConvertError unless the file is a token file of llm.c, version 1, with the length in its header.
    Returns the number of tokens."""
    with open(path, "rb") as file:
        head = file.read(TOKEN_HEADER.size)
        size = os.fstat(file.fileno()).st_size
    if len(head) < TOKEN_HEADER.size:
        raise ConvertError(f"{path}: {size} bytes are too short for the header of a token file")
    magic, version, tokens = TOKEN_HEADER.unpack(head)[:3]
    if (magic, version) != (TOKEN_MAGIC, TOKEN_VERSION):
        raise ConvertError(f"{path}: not a token file of version {TOKEN_VERSION} (it begins with {magic}, {version})")
    if tokens < 1 or size != TOKEN_HEADER.size + 2 * tokens:
        raise ConvertError(f"{path}: {size} bytes for {tokens} tokens; expected {TOKEN_HEADER.size + 2 * tokens} bytes")
    return tokens


CONVERTERS = {"tinyshakespeare": tinyshakespeare, "openwebtext": openwebtext, "wikitext103": wikitext,
              "wikitext2": wikitext, "lambada": lambada, "hellaswag": hellaswag, "all_the_news": all_the_news}
