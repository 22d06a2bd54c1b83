"""The programs whose runs a study compares, and the file that each run must leave."""
import hashlib
from pathlib import Path
from typing import NamedTuple

from measured_programs import ROOT, program
from studies.machine import file_hash

PEERS, SENTIMENT = ROOT / "dev/peers", ROOT / "scripts/finetune_sentiment"


class Side(NamedTuple):
    """A side has a program of ours, or the script of a peer."""
    output: str                  # file in the folder of the run
    program: str = ""            # name of ours
    script: Path | None = None   # of a peer, for PYTHON
    files: tuple = ()            # of a peer, all that its results depend on

    def version(self):
        """A hash of the program."""
        if self.program:
            return file_hash(program(self.program))
        return hashlib.sha256("".join(map(file_hash, self.files)).encode()).hexdigest()[:16]


def peer_side(output, folder, name, *more):
    return Side(output, script=folder / name, files=(folder / name, *more))


TRAINING_FILES = [PEERS / name for name in ("train_pytorch.py", "gpt2.py", "windows.py", "files.py", "token_files.py")]
SIDES = {
    "ours": Side("log.jsonl", "train_gpt2"),
    "plan": Side("plan.txt", "train_gpt2"),     # --dry-run or --plan of ours, without a run
    "infer": Side("stdout.txt", "infer_gpt2"),  # a command of ours, such as bench
    "pytorch": peer_side("log.jsonl", PEERS, "train_distributed.py", *TRAINING_FILES),
    "transformers": peer_side("peer.json", SENTIMENT, "peers.py", SENTIMENT / "data.py", SENTIMENT / "metrics.py",
                              PEERS / "ranks.py"),
    "int8-peer": peer_side("peer.json", PEERS, "infer_int8_peers.py", PEERS / "infer_peers.py", PEERS / "side_process.py"),
}
OURS = tuple(name for name, side in SIDES.items() if side.program)
