"""Sentences of two classes for tests of scripts/finetune_sentiment.sh."""
import random


def write_sentences(folder, count=200):
    """Made-up sentences, of which the words show the class in most cases."""
    draw = random.Random(1)
    words = {"positive": ["warm", "funny", "moving", "fine"], "negative": ["dull", "tired", "flat", "weak"]}
    folder.mkdir(parents=True, exist_ok=True)
    for label, own in words.items():
        other = words["negative" if label == "positive" else "positive"]
        lines = [" ".join(draw.choice(own if draw.random() < 0.7 else other + ["a", "film", "the", "is"])
                          for _ in range(draw.randint(3, 14))) + f" , number {label} {i} ." for i in range(count)]
        (folder / f"{label}.txt").write_text("\n".join(lines) + "\n")
    return folder
