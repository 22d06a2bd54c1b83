"""Exports runs as TensorBoard's event files, without TensorFlow.

An event file is a sequence of records (TFRecord): length as 64 bits, its checksum, the bytes, their
checksum. Each record is a protocol buffer Event: first one with the version, then one per step with scalars.
Both formats are simple enough to write directly; tensorflow/core/lib/io/record_writer.h and
tensorflow/core/util/event.proto describe them.
"""
import os
import struct

from run_view.history import value_text

EVENT_FILE = "events.out.tfevents.0000000000.run_log"
DT_STRING = 7  # of tensorflow/core/framework/types.proto
TAGS = {"loss": "loss/training", "val_loss": "loss/validation", "bits_per_byte": "loss/training_bits_per_byte",
        "val_bits_per_byte": "loss/validation_bits_per_byte", "grad_norm": "training/grad_norm", "lr": "training/lr",
        "tokens": "training/tokens", "tok_per_s": "speed/tok_per_s", "mfu": "speed/mfu", "mfu_full": "speed/mfu_full",
        "step_ms": "speed/step_ms"}


def tag_of(key):
    """The TensorBoard tag of a key of the log; keys without an entry in TAGS are about the machine."""
    return TAGS.get(key, f"machine/{key}")


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # CRC-32C (Castagnoli), bits reversed
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def masked_crc(data):
    """CRC-32C with TFRecord's mask (rotation and offset), because CRCs of data that contains CRCs are problematic."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, wire_type, payload):
    return varint(number << 3 | wire_type) + payload


def text_field(number, data):
    return field(number, 2, varint(len(data)) + data)


def scalar_event(wall_time, step, values):
    """Event {1: wall_time, 2: step, 5: Summary {1: Value {1: tag, 2: simple_value}}}."""
    summary = b"".join(text_field(1, text_field(1, tag.encode()) + field(2, 5, struct.pack("<f", as_float(value))))
                       for tag, value in values)
    return field(1, 1, struct.pack("<d", wall_time)) + field(2, 0, varint(step)) + text_field(5, summary)


def text_event(wall_time, step, tag, text):
    """An event with Value {1: tag, 8: TensorProto {1: dtype, 8: string}, 9: metadata {1: {1: name of the plugin}}}."""
    tensor = field(1, 0, varint(DT_STRING)) + text_field(8, text.encode())
    value = text_field(1, tag.encode()) + text_field(8, tensor) + text_field(9, text_field(1, text_field(1, b"text")))
    return field(1, 1, struct.pack("<d", wall_time)) + field(2, 0, varint(step)) + text_field(5, text_field(1, value))


def cell(text):
    """The text as a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def history_texts(run):
    """(step, tag, Markdown text) of the settings of each process of the run, and of each time it was resumed."""
    for process in run.history.processes:
        if process.settings:
            rows = [f"| {cell(name)} | {cell(value_text(value))} |" for name, value in process.settings.items()]
            yield process.step, "settings", "\n".join(["| setting | value |", "|---|---|", *rows])
        if process.resumed:
            yield process.step, "resumed", process.description()


def as_float(value):
    largest = 3.4028234663852886e38  # the largest 32-bit float
    return max(-largest, min(largest, value))


def version_event(wall_time):
    return field(1, 1, struct.pack("<d", wall_time)) + text_field(3, b"brain.Event:2")


def wall_times(run):
    """{step: seconds since 1970}. The log has only durations; the file's modification time is taken as the time
    of its last line."""
    wall_time = run.path.stat().st_mtime - sum(ms for _, ms in run.series("step_ms")) / 1000
    times = {0: wall_time}
    for step, row in sorted(run.rows.items()):
        wall_time += row.get("step_ms", 0) / 1000
        times[step] = wall_time
    return times


def write_events(run, directory):
    """Writes the run's file to a folder of its own in `directory`, replacing an earlier one. Returns (path,
    number of scalars)."""
    times = wall_times(run)
    folder = directory / run.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / EVENT_FILE
    draft = path.with_name("." + EVENT_FILE + ".tmp")
    scalars = 0
    with open(draft, "wb") as file:
        wall_time = min(times.values())
        file.write(record(version_event(wall_time)))
        for step, tag, text in history_texts(run):
            file.write(record(text_event(times.get(step, wall_time), step, tag, text)))
        for step, values in run.steps():
            wall_time = times.get(step, wall_time)
            tagged = [(tag_of(key), value) for key, value in values.items()]
            file.write(record(scalar_event(wall_time, step, tagged)))
            scalars += len(tagged)
    os.replace(draft, path)
    return path, scalars
