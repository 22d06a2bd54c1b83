"""Small files in the formats of the real data sets, and a table of their sources, for test_prepare.py."""
import hashlib
import io
import json
import lzma
import struct
import tarfile
import zipfile
from pathlib import Path

from http_host import Page

ROOT = Path(__file__).resolve().parent.parent
ETAG = {"ETag": '"1"'}
SPEECHES = [f"ROLE {i}:\nWords of speech {i}, é.\n\n" for i in range(20)]
WIKI = {"train": 5, "valid": 2, "test": 3}  # articles
PAGES = [f"Page {i}\n\n\n\nwith a text: \u201cnaïve\u201d\n" for i in range(9)]
PASSAGES = [{"text": f"passage {i} and its last word"} for i in range(4)]
QUESTIONS = [{"ind": i, "activity_label": "x", "ctx_a": "a", "ctx_b": "b", "ctx": "a b", "split": "val",
              "endings": ["one", "two", "three", "four"], "label": i % 4, "source_id": f"s{i}"} for i in range(6)]


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, body in files:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


def zip_of(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files:
            archive.writestr(name, body)
    return out.getvalue()


def pages_archive(pages=PAGES, wrap=lambda name: f"openwebtext/{name}"):
    """A .tar.xz of .tar.xz files of texts, the format of OpenWebText."""
    halves = [pages[:5], pages[5:]]
    inner = [(wrap(f"urlsf_subset0{i}-1_data.xz"), lzma.compress(tar_of(
        [(f"{i}-{n:04d}.txt", text.encode()) for n, text in enumerate(half)]))) for i, half in enumerate(halves)]
    return lzma.compress(tar_of([("openwebtext/README", b"not a text"), *inner]))


def wiki_archive():
    def article(i):
        return f" = Article {i} = \n \n A text @-@ of words = . \n \n = = A section = = \n \n More of it . \n \n"
    return zip_of([(f"wikitext-103-raw/wiki.{part}.raw", " \n" + "".join(map(article, range(count))))
                   for part, count in WIKI.items()])


def news_archive():
    rows = ["date,year,month,day,author,title,article,url,section,publication"]
    rows += [f'2016-12-09,2016,12.0,9,"A, B",Title {i},"He said ""yes"".\nA second line, with a comma. {"x" * 200_000}"'
             f",http://x/{i},,Vox" for i in range(3)]
    rows += ["2016-12-09,2016,12.0,9,,No text,,http://x/9,,Vox", "2016-12-09,2016,12.0,9,,,Without a title,u,,Vox"]
    return zip_of([("all-the-news-2-1.csv", "\n".join(rows) + "\n")])


def token_shard(tokens, magic=20240520, version=1, announced=None):
    header = [magic, version, len(tokens) if announced is None else announced] + [0] * 253
    return struct.pack("<256i", *header) + struct.pack(f"<{len(tokens)}H", *tokens)


def lines_of(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def all_files():
    return {"tinyshakespeare": "".join(SPEECHES).encode(), "openwebtext": pages_archive(), "wikitext103": wiki_archive(),
            "wikitext2": wiki_archive(), "lambada": lines_of(PASSAGES), "hellaswag": lines_of(QUESTIONS),
            "all_the_news": news_archive()}


def table_and_pages(folder, files=None):
    """Returns (path of a table like data/sources.json, pages to serve). Each source keeps the paths of its
    URLs and gets the size and checksum of its made-up file; all_the_news has neither, as in the real table.
    `files` ({source name: bytes}) replaces files of all_files()."""
    table, pages = json.loads((ROOT / "data/sources.json").read_text()), {}
    for name, body in {**all_files(), **(files or {})}.items():
        (file,) = table[name]["files"]
        pages["/" + file["urls"][0].split("/", 3)[3].split("?")[0]] = Page(body, headers=ETAG)
        if "sha256" in file:
            file.update(size=len(body), sha256=hashlib.sha256(body).hexdigest())
        table[name]["unpacked"] = 0
    shards = table["fineweb10b"]["shards"]
    shards.update(count=3, size=1024 + 2 * 50, sha256={})
    for index, name in enumerate([shards["validation"]] + [shards["training"].format(i) for i in (1, 2, 3)]):
        pages["/" + shards["url"].split("/", 3)[3] + name] = Page(token_shard(range(50 if index < 3 else 20)), headers=ETAG)
    path = folder / "sources.json"
    path.write_text(json.dumps(table))
    return path, pages


def model_files(layers=2, channels=4, positions=8, damage=None):
    """{file name: bytes} of a GPT-2 with 50257 tokens. damage(shapes) may change {tensor name: shape}."""
    shapes = {"wte.weight": [50257, channels], "wpe.weight": [positions, channels], "ln_f.weight": [channels]}
    for layer in range(layers):
        shapes[f"h.{layer}.attn.c_attn.weight"] = [channels, 3 * channels]
        shapes[f"h.{layer}.mlp.c_fc.weight"] = [channels, 4 * channels]
    if damage:
        damage(shapes)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        size = 4
        for n in shape:
            size *= n
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    head = json.dumps(header).encode()
    config = {"n_layer": layers, "n_embd": channels, "n_head": 1, "vocab_size": 50257, "n_positions": positions}
    return {"config.json": json.dumps(config).encode(),
            "generation_config.json": b"{}", "tokenizer.json": b"{}", "tokenizer_config.json": b"{}",
            "vocab.json": json.dumps({f"t{i}": i for i in range(50257)}).encode(),
            "merges.txt": ("#version: 0.2\n" + "a b\n" * 50000).encode(),
            "model.safetensors": len(head).to_bytes(8, "little") + head + bytes(end)}


def model_table_and_pages(folder, files):
    """Returns (path of a table like data/models.json, pages to serve), with `files` as GPT-2 124M."""
    table, pages = json.loads((ROOT / "data/models.json").read_text()), {}
    table["124M"]["shape"] = [2, 4]
    for file in table["124M"]["files"]:
        body = files[file["name"]]
        file.update(size=len(body), sha256=hashlib.sha256(body).hexdigest())
        pages["/" + file["urls"][0].split("/", 3)[3]] = Page(body, headers=ETAG)
    path = folder / "models.json"
    path.write_text(json.dumps(table))
    return path, pages
