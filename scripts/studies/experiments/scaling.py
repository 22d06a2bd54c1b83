"""Strong and weak scaling: data parallel training on 1, 2, 4 (8) ranks, next to PyTorch's DDP.

Strong: a fixed global batch is divided among the ranks. Weak: each rank has a fixed batch. Times are totals of a stated
number of samples. The first steps are not timed.
"""
from studies.budget import shrunk_sizes
from studies.experiments.common import (EPOCH_WINDOWS, Training, cost_runs, model_text, our_run, peer_run, scale_facts,
                                        timed_steps)
from studies.experiment import Experiment, ratio_of
from studies.figures import Bars, Curve, Curves
from studies.machine import FUNCTIONAL, MEASURED
from studies.tables import TIMED, Column, Row, Table, middle

COMPUTE = ("fwd_ms", "bwd_ms", "recompute_ms", "optimizer_ms")
PARTS = {"forward": ("fwd_ms",), "backward": ("bwd_ms", "recompute_ms"), "bubble": ("bubble_ms",),
         "optimizer": ("optimizer_ms",), "other": ("data_ms", "offload_ms", "other_ms")}
ALL_CORES = "ours-1-all-cores-batch"  # and the batch: name of a run of one rank
NOT_MEASURED = "functional: the ranks share cores or a GPU, so their times say nothing about scaling"


def ours(ranks, batch):
    return f"ours-dp{ranks}-batch{batch}"


def all_cores(batch):
    return f"{ALL_CORES}{batch}"


def has_all_cores(name):
    return name.startswith(ALL_CORES)


def ddp(ranks, batch):
    return f"pytorch-ddp{ranks}-batch{batch}"


class Scaling(Experiment):
    """Both experiments; they differ in the batch of a row."""
    share = 2.0
    point_title = ""
    most_samples = 0

    cost_runs = staticmethod(cost_runs)

    def facts(self, study):
        ranks = [n for n in study.ranks if all(self.batch(point, n) % n == 0 for point in self.points(study))]
        return {**scale_facts(study), "ranks": ranks, "windows": EPOCH_WINDOWS}

    def sizes(self, study, facts):
        samples = [self.most_samples >> i for i in range(4)]
        points = self.points(study)
        return shrunk_sizes(samples, [points, points[:1]], study.repeats)

    def plan(self, study, facts, size):
        runs, names = [], set()

        def add(make, run, *words):
            if run.name not in names:
                names.add(run.name)
                runs.append(make(study, run, *words))
        for point in size.points:
            for n in facts["ranks"]:
                batch = self.batch(point, n)
                samples = self.samples(size.samples, n)
                run = Training(ours(n, batch), batch, timed_steps(samples, batch), facts["windows"], n, n, facts["cores"],
                               ("--zero", 0))
                add(our_run, run)
                if not study.peers:
                    add(peer_run, run._replace(name=ddp(n, batch), layout=()), "ddp")
            if facts["all_cores"] > facts["cores"]:
                batch = self.batch(point, 1)
                add(our_run, Training(all_cores(batch), batch, timed_steps(self.samples(size.samples, 1), batch),
                                      facts["windows"], 1, 1, facts["all_cores"], ("--zero", 0)))
        for point, n in self.share_rows(study, facts, size):  # the same work per rank, on one rank
            batch = self.batch(point, n) // n
            add(our_run, Training(ours(1, batch), batch, timed_steps(size.samples, batch), facts["windows"], 1, 1,
                                  facts["cores"], ("--zero", 0)))
        return runs

    def share_rows(self, study, facts, size):
        """(point, ranks) of the rows for which one rank computes the work of each rank."""
        return [] if not self.batch_effect else [(point, n) for point in size.points for n in facts["ranks"]
                if n > 1 and study.machine.evidence(n, facts["cores"]) == MEASURED]

    # ---- numbers of a row --------------------------------------------------------------------

    def rows(self, facts, results):
        """(point, ranks, batch, name) of each row."""
        for point in facts["points"]:
            for n in facts["ranks"]:
                batch = self.batch(point, n)
                yield point, n, batch, ours(n, batch)
            batch = self.batch(point, 1)
            if results.has(all_cores(batch)):
                yield point, 1, batch, all_cores(batch)

    def total(self, results, name, batch, samples, *keys):
        """Seconds for `samples` samples: a spread over the repeats."""
        def number(result):
            seconds = result.timed_mean(*keys)
            return None if seconds is None else seconds * samples / batch
        return results.spread(name, number)

    @staticmethod
    def cores(facts, name):
        return facts["all_cores" if has_all_cores(name) else "cores"]

    def time_row(self, facts, results, point, n, batch, name):
        samples = self.samples(facts["samples"], n)
        time = self.total(results, name, batch, samples, "step_ms")
        one = self.total(results, ours(1, self.batch(point, 1)), self.batch(point, 1), self.samples(facts["samples"], 1),
                         "step_ms")
        peer = ddp(n, batch) if not has_all_cores(name) else ""
        theirs = self.total(results, peer, batch, samples, "step_ms")
        their_one = self.total(results, ddp(1, self.batch(point, 1)), self.batch(point, 1),
                               self.samples(facts["samples"], 1), "step_ms")
        per_sample = None if time is None else 1000 * middle(time) * n / samples
        share = self.total(results, ours(1, batch // n), batch // n, samples, "step_ms")
        whole = self.total(results, ours(1, batch), batch, samples, "step_ms")
        cells = {"ranks": n, "cores": self.cores(facts, name), "batch": batch, "samples": samples, "time": time,
                 "epoch": None if time is None else middle(time) * facts["windows"] / samples,
                 "per_sample": per_sample, "speedup": self.speedup(one, time, n), "ddp": theirs,
                 "ddp_speedup": self.speedup(their_one, theirs, n), "ratio": ratio_of(time, theirs)}
        cells["efficiency"] = None if cells["speedup"] is None else cells["speedup"] / n
        cells["batch_effect"] = ratio_of(share, whole) if n > 1 else None
        why = {"ddp": facts["peers"] or (results.reason(peer) if peer else "only ours"), "batch_effect":
               "a row of one rank" if n == 1 else "not measured for this row"}
        why["ddp_speedup"] = why["ratio"] = why["ddp"]
        if has_all_cores(name):
            cells["speedup"] = cells["efficiency"] = None
            why |= dict.fromkeys(("speedup", "efficiency"), "more cores than the other rows")
        elif results.evidence(name) == FUNCTIONAL:
            for key in ("speedup", "efficiency", "ddp_speedup", "batch_effect", "per_sample", "ratio"):
                cells[key] = None
                why[key] = NOT_MEASURED
        return results.row(name, cells, why)

    def parts_row(self, facts, results, n, batch, name):
        samples = self.samples(facts["samples"], n)
        cells = {"ranks": n, "cores": self.cores(facts, name), "batch": batch,
                 "compute": self.total(results, name, batch, samples, *COMPUTE),
                 "communication": self.total(results, name, batch, samples, "comm_ms")}
        for key, keys in PARTS.items():
            cells[key] = self.total(results, name, batch, samples, *keys)
        for key in ("compute", "communication"):
            cells[key + "_epoch"] = None if cells[key] is None else middle(cells[key]) * facts["windows"] / samples
        cells["cost"] = ratio_of(cells["communication"], cells["compute"])
        cells["bytes"] = results.exact(name, lambda result: result.steps()[-1].get("comm_bytes_dp"))
        return results.row(name, cells)

    # ---- tables and figures ------------------------------------------------------------------

    def tables(self, facts, results):
        rows = list(self.rows(facts, results))
        samples_text = self.samples_text(facts)
        times = Table(self.name, f"{self.title}: time of {samples_text}", self.time_columns(),
                      [self.time_row(facts, results, *row) for row in rows], results.device, results.commit,
                      [model_text(facts), f"An epoch has {facts['windows']:,} samples. Its time is computed from that of "
                                          "the timed samples.", *self.notes(facts)])
        for _, n, batch, name in rows:
            tokens = batch * facts["shape"]["T"]
            times.problems += results.wrong_tokens(name, self.label(n, batch, name), tokens)
            if not has_all_cores(name):
                times.problems += results.wrong_tokens(ddp(n, batch), "DDP, " + self.label(n, batch, name), tokens)
        parts = Table(f"{self.name}-parts", f"{self.title}: parts of the time of {samples_text}", PARTS_COLUMNS,
                      [self.parts_row(facts, results, n, batch, name) for _, n, batch, name in rows], results.device,
                      results.commit, ["Seconds, means over ranks. Computation is forward, backward and optimizer; "
                                       "communication is the time that the computation waits for it. Parts add up to the "
                                       "total."])
        return [times, parts, *self.fits(facts, results, times)]

    def fits(self, facts, results, times):
        return []

    def time_columns(self):
        return [Column("ranks", "ranks"), Column("cores", "cores per rank"), Column("batch", "global batch"),
                Column("samples", "samples", digits=0), Column("time", "time, s", TIMED, 2),
                Column("speedup", self.speedup_title, TIMED, 2), Column("efficiency", "efficiency", TIMED, 2),
                Column("epoch", "s per epoch", TIMED, 2), Column("per_sample", "ms per sample of a rank", TIMED, 2),
                *self.batch_effect, Column("ddp", "PyTorch DDP, s", TIMED, 2),
                Column("ddp_speedup", f"DDP {self.speedup_title}", TIMED, 2), Column("ratio", "time, ours / DDP", TIMED, 2)]

    def figures(self, facts, results, tables):
        rows = list(self.rows(facts, results))
        times = [(row, *key) for row, key in zip(tables[0].rows, rows) if row.cells["time"] is not None]
        bars = [(self.label(n, batch, name), [middle(row.cells["time"])], row.evidence == FUNCTIONAL)
                for row, _, n, batch, name in times]
        parts = [(self.label(n, batch, name), [middle(row.cells[key]) for key in STACK], row.evidence == FUNCTIONAL)
                 for row, (_, n, batch, name) in zip(tables[1].rows, rows) if row.cells["compute"] is not None]
        curves = []
        for point in facts["points"]:
            for key, side in (("speedup", "ours"), ("ddp_speedup", "PyTorch DDP")):
                points = [(n, row.cells[key]) for row, p, n, _, _ in times if p == point and row.cells[key] is not None]
                if len(points) > 1:
                    curves.append(Curve(f"{side}, {self.point_title} {point}", points, dots=True))
        ranks = [n for n in facts["ranks"] if any(x == n for curve in curves for x, *_ in curve.points)]
        if curves:
            curves.append(Curve("ideal", [(n, n) for n in ranks], dashed=True))
        return [Bars(f"{self.name}-time", f"{self.title}: time of {self.samples_text(facts)}", "seconds", ["time"], bars),
                Bars(f"{self.name}-parts", f"{self.title}: parts of the time", "seconds", list(STACK.values()), parts),
                Curves(f"{self.name}-speedup", f"{self.title}: {self.speedup_title}", "ranks", self.speedup_title, curves,
                       x_ticks=ranks)]

    @staticmethod
    def label(n, batch, name):
        ranks = "1 rank, all cores" if has_all_cores(name) else f"{n} rank{'s' * (n > 1)}"
        return f"{ranks}, batch {batch}"


STACK = {"compute": "computation", "communication": "communication", "bubble": "bubble", "other": "other"}
PARTS_COLUMNS = [Column("ranks", "ranks"), Column("cores", "cores per rank"), Column("batch", "global batch"),
                 Column("compute", "computation", TIMED, 2),
                 Column("communication", "communication", TIMED, 2), Column("forward", "forward", TIMED, 2),
                 Column("backward", "backward", TIMED, 2), Column("bubble", "bubble", TIMED, 2),
                 Column("optimizer", "optimizer", TIMED, 2), Column("other", "other", TIMED, 2),
                 Column("compute_epoch", "computation per epoch", TIMED, 2),
                 Column("communication_epoch", "communication per epoch", TIMED, 2),
                 Column("cost", "communication / computation", TIMED, 3),
                 Column("bytes", "bytes sent per step and rank", digits=0)]


class Strong(Scaling):
    name, title = "strong", "Strong scaling"
    question = "How much faster are more ranks on the same global batch, and where does the time go?"
    point_title, speedup_title = "batch", "speed-up"
    most_samples = 1024
    batch_effect = [Column("batch_effect", "one rank: time per sample at the rank's batch / at the global batch", TIMED, 3)]

    @staticmethod
    def points(study):
        return study.scale.batches

    @staticmethod
    def batch(point, n):
        return point

    @staticmethod
    def samples(samples, n):
        return samples

    @staticmethod
    def samples_text(facts):
        return f"{facts['samples']:,} samples"

    @staticmethod
    def speedup(one, time, n):
        return ratio_of(one, time)

    @staticmethod
    def notes(facts):
        return ["Speed-up: time of one rank / time. A speed-up above the number of ranks needs ranks that compute faster "
                "than one rank does: compare their time per sample, and the time per sample of one rank at the batch of a "
                "rank (below 1: a smaller batch is faster, for example because it fits the caches)."]

    def fits(self, facts, results, times):
        """Amdahl's law, T(N) = T(1) (s + (1 - s) / N), fitted by least squares to the measured speed-ups."""
        rows = []
        for point in facts["points"]:
            points = [(row.cells["ranks"], row.cells["speedup"]) for row in times.rows
                      if row.cells["batch"] == point and row.cells["speedup"] is not None and row.evidence == MEASURED]
            serial = serial_fraction(points)
            why = {"serial": "needs a measured row with several ranks", "limit": "needs a positive serial fraction"}
            rows.append(Row({"batch": point, "rows": len(points), "serial": serial,
                             "limit": 1 / serial if serial and serial > 0 else None}, MEASURED, why=why))
        return [Table("strong-amdahl", "Strong scaling: fit of Amdahl's law", [
            Column("batch", "global batch"), Column("rows", "measured rows"), Column("serial", "serial fraction", TIMED, 4),
            Column("limit", "largest speed-up", TIMED, 1)], rows, results.device, results.commit,
            ["Least squares of T(N) / T(1) = s + (1 - s) / N over the measured rows. A negative serial fraction is a "
             "speed-up above the number of ranks."])]


def serial_fraction(points):
    """s of Amdahl's law for (ranks, speed-up); None without a point of several ranks."""
    terms = [(1 - 1 / n, 1 / speedup - 1 / n) for n, speedup in points if n > 1]
    return sum(x * y for x, y in terms) / sum(x * x for x, _ in terms) if terms else None


class Weak(Scaling):
    name, title = "weak", "Weak scaling"
    question = "How much more do more ranks do in the same time, if each has the same batch?"
    point_title, speedup_title = "batch per rank", "scaled speed-up"
    most_samples = 512
    batch_effect = []  # the batch of a rank is the same in all rows

    @staticmethod
    def points(study):
        return study.scale.rank_batches

    @staticmethod
    def batch(point, n):
        return point * n

    @staticmethod
    def samples(samples, n):
        return samples * n

    @staticmethod
    def samples_text(facts):
        return f"{facts['samples']:,} samples per rank"

    @staticmethod
    def speedup(one, time, n):
        ratio = ratio_of(one, time)
        return None if ratio is None else n * ratio

    @staticmethod
    def notes(facts):
        return ["Scaled speed-up: ranks x (time of one rank / time), for equally many samples per rank. Efficiency is time "
                "of one rank / time."]
