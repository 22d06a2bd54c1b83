#!/usr/bin/env python3
"""Prints 500 made-up conversations about table bookings as JSON lines, for the page llmc/train/CHAT.md.

    python3 dev/experiments/bookings.py > bookings.jsonl
"""
import json
import random

ASKS = ["A table for {n} on {d} at {h} pm, please.", "Is there a table for {n} on {d} at {h} in the evening?",
        "We are {n} and will come on {d} at {h} pm.", "{d}, {h} pm, {n} people."]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def main():
    draw, lines = random.Random(1), {}
    while len(lines) < 500:
        n, h, d = draw.randint(2, 12), draw.randint(5, 10), draw.choice(DAYS)
        ask, answer = draw.choice(ASKS).format(n=n, h=h, d=d), f"guests {n}, day {d}, time {h + 12}:00"
        messages = [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]
        lines[json.dumps({"messages": messages})] = None
    print("\n".join(lines))


if __name__ == "__main__":
    main()
