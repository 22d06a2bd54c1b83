"""Labelled texts and conversations for tests of `train_gpt2 --task`, which a small model learns in seconds."""
import json

SIZES = ["--layers", 2, "--heads", 2, "--channels", 32, "--context", 32]
QUIET = ["--peak-tflops", 1, "--quiet"]
LABELS = ["COLD", "HOT", "MILD"]  # in the order of their bytes, which numbers them
WORDS = "fox owl bee cat elk ant hen pig cow rat".split()


def write_lines(program, name, objects):
    (program.folder / name).write_text("".join(json.dumps(one) + "\n" for one in objects))
    return name


def labelled(count=48, label=lambda index: LABELS[index]):
    """Texts whose last word determines the label, as label(index of the class)."""
    words = ["cold", "hot", "mild"]
    places = ["day", "week", "room"]
    classes = [(7 * i + i // 5) % 3 for i in range(count)]
    return [{"text": f"{places[i % 3]} {i} is {words[c]}", "label": label(c)} for i, c in enumerate(classes)]


def questions():
    """20 prompts, each with one completion."""
    return [{"prompt": f"{WORDS[i % 10]} {i // 10}:", "completion": f" {WORDS[(3 * i + 1) % 10]} {WORDS[(7 * i + i // 10) % 10]}"}
            for i in range(20)]


def conversations():
    """The same as questions(), in the form of messages."""
    return [{"messages": [{"role": "user", "content": one["prompt"]}, {"role": "assistant", "content": one["completion"].strip()}]}
            for one in questions()]
