"""Reads what train_gpt2 --dry-run prints: the memory of each rank, and what it sends per step."""
import re

STATE = ("weights", "master weights", "gradients", "moments")  # of training, without activations
SLOTS = ("gathered weights", "gradient buckets")               # of sharded buckets that are in use
GROUP = re.compile(r"ranks? (\d+)(?: to (\d+), each)?")
ALL_SEND = re.compile(r"each rank sends per step:$")


class Plan:
    """Of each rank: `device` and `host` {segment: bytes}, and `traffic` {kind: bytes}."""

    def __init__(self, text):
        self.device, self.host, self.traffic = [], [], []
        match = re.search(r"^model: (\d+) parameters", text, re.M)
        self.parameters = int(match[1]) if match else None
        group, sends = [], False
        for line in text.splitlines():
            if ALL_SEND.match(line):
                group, sends = range(len(self.device)), True
            elif line.startswith("a rank moves per step"):
                group = []
            elif (match := GROUP.match(line)) and not line.startswith(" "):
                group, sends = self._ranks(match, sends="sends per step" in line), "sends per step" in line
            elif line.startswith("  "):
                self._add(line, group, sends)

    def _ranks(self, match, sends):
        ranks = range(int(match[1]), int(match[2] or match[1]) + 1)
        if not sends:
            for places in (self.device, self.host, self.traffic):
                places += [{} for _ in ranks]
        return ranks

    def _add(self, line, group, sends):
        plain = re.match(r"  ([^:]+): (\d+) bytes", line)
        table = re.match(r"  ([a-z ]+?) {2,}(\d+) +(\d+) +(\d+)$", line)
        for rank in group:
            if plain:
                (self.traffic if sends else self.device)[rank][plain[1]] = int(plain[2])
            elif table and not sends:
                self.device[rank][table[1]], self.host[rank][table[1]] = int(table[2]), int(table[3])

    def largest(self, names, places=None):
        """The largest sum over segments among ranks."""
        return max(sum(rank.get(name, 0) for name in names) for rank in (places or self.device))

    def state(self):
        return self.largest(STATE)

    def slots(self):
        return self.largest(SLOTS)

    def total(self):
        return self.largest(["in all"])

    def host_total(self):
        return self.largest(["in all"], self.host)

    def sent(self, *kinds):
        """Bytes that the rank that sends the most sends per step, of these kinds; of all by default."""
        return self.largest(kinds or ("in all",), self.traffic)


def read_plan(result):
    return Plan((result.folder / "plan.txt").read_text(encoding="utf-8"))
