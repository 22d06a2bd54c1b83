"""Differences between two folders in which the same commands were executed."""
import difflib
import json
import math
import re
import struct
from dataclasses import dataclass
from fnmatch import fnmatch

import allowed
from readers import is_token_file, read_lines, read_safetensors, read_token_file

TEXT_LIMIT = 160  # characters of a line that are shown


@dataclass
class Difference:
    file: str
    place: str  # a line, a key, an element of a tensor; empty: the whole file
    old: str
    new: str
    note: str = ""  # for example the largest difference between a tensor's elements
    wording: bool = False  # only the words of a message differ

    def __str__(self):
        location = f"{self.file}: {self.place}" if self.place else self.file
        return f"{location}: {self.old} -> {self.new}" + (f"  ({self.note})" if self.note else "")


def folder_differences(old, new, messages=()):
    """Compares all files below two folders. `messages`: files whose every difference is wording."""
    files = [{str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()
              and not any(fnmatch(str(path), pattern) for pattern, _ in allowed.IGNORED_FILES)}
             for folder in (old, new)]
    all_differences = []
    for file in sorted(files[0].keys() | files[1].keys()):
        if file not in files[0] or file not in files[1]:
            all_differences.append(Difference(file, "", *("present" if file in side else "missing" for side in files)))
        elif files[0][file].read_bytes() != files[1][file].read_bytes():
            differences = file_differences(file, files[0][file], files[1][file])
            for difference in differences:
                difference.wording |= file in messages
            all_differences += differences
    return all_differences


def file_differences(file, old, new):
    """Compares two files with different bytes. The result is empty if allowed.py permits every difference."""
    try:
        if file.endswith(".safetensors"):
            return tensor_file_differences(file, old, new)
        if file.endswith(".json"):
            return json_differences(file, json.loads(old.read_text()), json.loads(new.read_text()))
        if file.endswith(".jsonl"):
            return json_lines_differences(file, read_lines(old, file), read_lines(new, file))
        if is_token_file(old) and is_token_file(new):
            return token_file_differences(file, old, new)
    except (ValueError, KeyError, IndexError, struct.error) as error:
        return [Difference(file, "", "readable", "not readable", f"{type(error).__name__}: {error}")]
    if file.endswith((".bin", ".idx")):
        return byte_differences(file, old.read_bytes(), new.read_bytes())
    return line_differences(file, read_lines(old, file), read_lines(new, file))


# ---- tensors and tokens --------------------------------------------------------------------


def tensor_file_differences(file, old, new):
    (old_tensors, old_metadata), (new_tensors, new_metadata) = read_safetensors(old), read_safetensors(new)
    differences = json_differences(file, old_metadata, new_metadata, "metadata")
    for name in [*old_tensors, *(name for name in new_tensors if name not in old_tensors)]:
        if name not in old_tensors or name not in new_tensors:
            differences.append(Difference(file, name, *("present" if name in side else "missing"
                                                        for side in (old_tensors, new_tensors))))
        else:
            differences += tensor_differences(file, name, old_tensors[name], new_tensors[name])
    if not differences and [*old_tensors] != [*new_tensors]:
        differences.append(Difference(file, "order of tensors", str([*old_tensors]), str([*new_tensors])))
    return differences


def tensor_differences(file, name, old, new):
    kinds = [f"{tensor.dtype} {tensor.shape}" for tensor in (old, new)]
    if kinds[0] != kinds[1]:
        return [Difference(file, name, *kinds)]
    size = old.element_size()
    indices = [i for i in range(len(old.data) // size)
               if old.data[i * size:(i + 1) * size] != new.data[i * size:(i + 1) * size]]
    if not indices:
        return []
    pairs = [(old.element(i), new.element(i)) for i in indices]
    largest = max((abs(a - b) for a, b in pairs if math.isfinite(a - b)), default=math.nan)
    not_finite = sum(not math.isfinite(a - b) for a, b in pairs)
    note = f"{len(indices)} of {len(old.data) // size} elements differ, max abs difference {largest:.3g}"
    if not_finite:
        note += f", {not_finite} not finite"
    return [Difference(file, f"{name}[{indices[0]}]", f"{pairs[0][0]:.9g}", f"{pairs[0][1]:.9g}", note)]


def token_file_differences(file, old, new):
    (old_header, old_ids), (new_header, new_ids) = read_token_file(old), read_token_file(new)
    differences = [Difference(file, f"header[{i}]", str(a), str(b))
                   for i, (a, b) in enumerate(zip(old_header, new_header)) if a != b]
    if len(old_ids) != len(new_ids):
        differences.append(Difference(file, "number of tokens", str(len(old_ids)), str(len(new_ids))))
    indices = [i for i, (a, b) in enumerate(zip(old_ids, new_ids)) if a != b]
    if indices:
        i = indices[0]
        note = f"{len(indices)} tokens differ"
        differences.append(Difference(file, f"token {i}", str(old_ids[i]), str(new_ids[i]), note))
    return differences or byte_differences(file, old.read_bytes(), new.read_bytes())


def byte_differences(file, old, new):
    if len(old) != len(new):
        return [Difference(file, "size", f"{len(old)} bytes", f"{len(new)} bytes")]
    indices = [i for i, (a, b) in enumerate(zip(old, new)) if a != b]
    first = indices[0]
    return [Difference(file, f"byte {first}", hex(old[first]), hex(new[first]), f"{len(indices)} bytes differ")]


# ---- JSON ----------------------------------------------------------------------------------


def json_lines_differences(file, old, new):
    if len(old) != len(new):
        longer, side = (old, "new") if len(old) > len(new) else (new, "old")
        extra = longer[min(len(old), len(new))]
        note = f"first line that the {side} side lacks: {display_text(extra)}"
        return [Difference(file, "number of lines", str(len(old)), str(len(new)), note),
                *json_lines_differences(file, old[:len(new)], new[:len(old)])]
    differences = []
    for number, (a, b) in enumerate(zip(old, new), 1):
        if a != b:
            record = json.loads(a)
            step = f" (step {record['step']})" if isinstance(record, dict) and "step" in record else ""
            for difference in json_differences(file, record, json.loads(b)):
                difference.place = f"line {number}{step}: {difference.place}"
                differences.append(difference)
    return differences


def json_differences(file, old, new, key=""):
    """Compares two JSON values. `key`: their place in the file, such as "files.0.name"."""
    if any(fnmatch(file, pattern) and fnmatch(key, ignored) for pattern, ignored, _ in allowed.IGNORED_KEYS):
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        old, new = ({allowed.with_new_names(name): value for name, value in side.items()} for side in (old, new))
        parts = {name: (old.get(name, Missing), new.get(name, Missing)) for name in {**old, **new}}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        parts = dict(enumerate(zip(old, new)))
    elif isinstance(old, str) and isinstance(new, str):
        return string_differences(file, key, allowed.with_new_names(old), allowed.with_new_names(new))
    else:  # repr is exact, and differs for 1 and 1.0 and for 0.0 and -0.0
        if repr(old) == repr(new):
            return []
        return [Difference(file, key, display_text(old), display_text(new), distance(old, new))]
    return [difference for name, (a, b) in parts.items()
            for difference in json_differences(file, a, b, f"{key}.{name}" if key else str(name))]


class Missing:
    """Value of a key that one side lacks."""


def string_differences(file, key, old, new):
    if old == new:
        return []
    prose = any(fnmatch(file, pattern) and fnmatch(key, name) for pattern, name, _ in allowed.PROSE_KEYS)
    return [Difference(file, key, display_text(old), display_text(new), wording=prose and allowed.same_values(old, new))]


def distance(old, new):
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (old, new))
    return f"difference {new - old:.3g}" if numbers else ""


# ---- text ----------------------------------------------------------------------------------


def line_differences(file, old, new):
    differences = []
    for operation, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if operation == "replace" and b - a == d - c:
            for i, (one, other) in enumerate(zip(old[a:b], new[c:d])):
                wording = is_prose(file, one) and is_prose(file, other) and allowed.same_values(one, other)
                differences.append(Difference(file, f"line {c + i + 1}", display_text(one), display_text(other),
                                              wording=wording))
        elif operation != "equal":
            differences += [Difference(file, f"line {i + 1}", display_text(old[i]), "no such line")
                            for i in range(a, b)]
            differences += [Difference(file, f"line {i + 1}", "no such line", display_text(new[i]))
                            for i in range(c, d)]
    return differences


def is_prose(file, line):
    return any(fnmatch(file, pattern) and re.match(prose, line) for pattern, prose, _ in allowed.PROSE_LINES)


def display_text(value):
    """The value as JSON, cut to TEXT_LIMIT characters."""
    text = "missing" if value is Missing else json.dumps(value, ensure_ascii=True)
    return text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + " ..."
