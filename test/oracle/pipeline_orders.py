#!/usr/bin/env python3
"""Writes test/oracle/fixtures/pipeline_orders.csv: the order of passes in PyTorch's pipeline schedules.

    python3 test/oracle/pipeline_orders.py [--out FILE]

Needs torch. A schedule is a line "NAME RANKS MICRO_BATCHES CHUNKS", then a row per rank without idle steps. The order
of 1F1B is what the schedule calls when it runs: its printed order starts the last rank with micro-batch 1.
"""

import argparse
import pathlib
from types import SimpleNamespace

from torch.distributed.pipelining import schedules

SINGLE = [(1, 3), (2, 2), (2, 5), (3, 3), (4, 4), (4, 9), (8, 8), (8, 16)]
INTERLEAVED = [(1, 4, 3), (2, 2, 2), (2, 6, 4), (3, 6, 2), (4, 4, 2), (4, 8, 3), (8, 8, 2), (8, 16, 4)]


class RecordedStage:
    """Stands for a stage and writes down the passes that a schedule calls."""

    def __init__(self, rank, ranks):
        self.stage_index, self.num_stages, self.passes = rank, ranks, []
        self.submod = None

    def forward_one_chunk(self, micro_batch, *_, **__):
        self.passes.append(f"{self.stage_index}F{micro_batch}")

    def backward_one_chunk(self, micro_batch, **__):
        self.passes.append(f"{self.stage_index}B{micro_batch}")

    def __getattr__(self, name):  # communication and gradients
        return lambda *_, **__: []


def one_forward_one_backward(ranks, micro_batches):
    for rank in range(ranks):
        schedule = schedules.Schedule1F1B.__new__(schedules.Schedule1F1B)
        stage = RecordedStage(rank, ranks)
        schedule.__dict__.update(_stage=stage, _num_stages=ranks, _n_microbatches=micro_batches, scale_grads=False,
                                 _finalize_gradients=False)
        nothing = [()] * micro_batches
        schedule._check_inputs = lambda *_: (nothing, nothing)
        schedule._initialize_stage = schedule._maybe_compute_loss = schedule._maybe_get_loss = lambda *_: None
        schedule._update_losses = lambda *_: None
        schedule._step_microbatches(target_mbs=nothing)
        yield stage.passes


def interleaved(ranks, micro_batches, chunks):
    for rank in range(ranks):
        schedule = schedules.ScheduleInterleaved1F1B.__new__(schedules.ScheduleInterleaved1F1B)
        schedule.__dict__.update(n_local_stages=chunks, microbatches_per_round=ranks, pp_group_size=ranks,
                                 _n_microbatches=micro_batches)
        yield [str(action) for action in schedule._calculate_single_rank_operations(rank) if action is not None]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = pathlib.Path(__file__).parent / "fixtures" / "pipeline_orders.csv"
    parser.add_argument("--out", type=pathlib.Path, default=default, help="file to write [fixtures/pipeline_orders.csv]")
    out = parser.parse_args().out
    cases = [("1F1B", *case, 1, one_forward_one_backward(*case)) for case in SINGLE]
    cases += [("interleaved", *case, interleaved(*case)) for case in INTERLEAVED]
    with out.open("w") as file:
        for *title, rows in cases:
            print(*title, file=file)
            for row in rows:
                print(",".join(row), file=file)


if __name__ == "__main__":
    main()
