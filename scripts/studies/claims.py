"""Claims of the field, and their verdicts by the tables of a study.

study_claims.json has a list of claims: `id`, `text`, `source`, `published` (the published number, as a text), `experiment`,
`rule` and `evidence`, the weakest evidence that decides (measured, functional or simulated). `quality` is true for a claim
about losses or scores, which one seed cannot decide. A claim that cannot be ours has `not_ours`, the reason, instead of
experiment, rule and evidence. A rule is one of

    {"value": V, "at_least": X, "at_most": Y}       one bound suffices
    {"rising": S} or {"falling": S}                 the cells of several rows, in their order
    {"greater": [V, V], "times": 1.0}               the first is at least so many times the second
    {"positive": V, "error": V}                     a mean over seeds; within two standard errors of 0 there is no verdict

V is a number: {"table": NAME, "where": {KEY: CELL}, "key": KEY} for the cell of the one row with these cells,
{"ratio": [V, V]}, or {"largest": S}, {"smallest": S}, {"first": S} and {"last": S} for several rows. S is like the first,
and any number of rows may match. A cell of repeats counts as its median.
"""
import json
import math
from typing import NamedTuple

from measured_programs import ROOT, RunError
from studies.tables import middle

CLAIMS_FILE = ROOT / "scripts/study_claims.json"
CONFIRMED, REFUTED, NOT_MEASURABLE, SIMULATED_ONLY = "confirmed", "refuted", "not measurable here", "simulated only"
STRENGTH = {"simulated": 0, "functional": 1, "measured": 2}
KEYS = {"id", "text", "source", "published", "experiment", "rule", "evidence"}
CHOICES = {"largest": max, "smallest": min, "first": lambda series: series[0], "last": lambda series: series[-1]}
OPTIONAL_KEYS = {"quality"}
FOREIGN_KEYS = {"id", "text", "source", "published", "not_ours"}


class Unknown(Exception):
    """The reason why a rule has no result here."""


class Verdict(NamedTuple):
    claim: dict
    verdict: str
    own: str      # our numbers, as a text
    reason: str   # why there is no verdict, or the evidence


def read_claims(path=CLAIMS_FILE):
    claims = json.loads(path.read_text(encoding="utf-8"))
    names = set()
    for claim in claims:
        name = claim.get("id")
        keys = FOREIGN_KEYS if "not_ours" in claim else KEYS
        if set(claim) - (OPTIONAL_KEYS if keys is KEYS else set()) != keys:
            raise RunError(f"{path}: the claim {name!r} has the keys {sorted(claim)}; required: {sorted(keys)}")
        if name in names:
            raise RunError(f"{path}: two claims are named {name!r}")
        names.add(name)
        if claim.get("evidence", "measured") not in STRENGTH:
            raise RunError(f"{path}: the claim {name!r} has the evidence {claim['evidence']!r}; allowed: {', '.join(STRENGTH)}")
    return claims


class Evaluation:
    """Evaluates a rule over the JSON of tables, and keeps the rows and numbers that it reads."""

    def __init__(self, tables):
        self._tables = tables
        self.rows, self.numbers = [], []

    def _matching(self, selector):
        table = self._tables.get(selector["table"])
        if table is None:
            raise Unknown(f"there is no table {selector['table']}")
        rows = [row for row in table["rows"] if all(row.get(key) == value for key, value in selector["where"].items())]
        if not rows:
            where = ", ".join(f"{key} {value}" for key, value in selector["where"].items())
            raise Unknown(f"the table {selector['table']} has no row with {where}")
        return rows

    def _cell(self, row, key):
        if key not in row:
            raise Unknown(f"its table has no column {key}")
        value = row[key]
        if value is None:
            raise Unknown(row.get("why", {}).get(key) or row.get("why", {}).get("") or "the value is missing")
        self.rows.append(row)
        number = middle(value)
        self.numbers.append(number)
        return number

    def series(self, selector):
        return [self._cell(row, selector["key"]) for row in self._matching(selector)]

    def value(self, rule):
        if "ratio" in rule:
            top, bottom = (self.value(part) for part in rule["ratio"])
            if bottom == 0:
                raise Unknown("the value to compare with is 0")
            self.numbers[-2:] = [top / bottom]
            return top / bottom
        for name, choose in CHOICES.items():
            if name in rule:
                before = len(self.numbers)
                number = choose(self.series(rule[name]))
                self.numbers[before:] = [number]
                return number
        rows = self._matching(rule)
        if len(rows) > 1:
            raise Unknown(f"the table {rule['table']} has {len(rows)} rows with these cells")
        return self._cell(rows[0], rule["key"])

    def holds(self, rule):
        if "value" in rule:
            number = self.value(rule["value"])
            return rule.get("at_least", -math.inf) <= number <= rule.get("at_most", math.inf)
        if "greater" in rule:
            first, second = (self.value(part) for part in rule["greater"])
            return first >= rule.get("times", 1.0) * second
        if "positive" in rule:
            mean, error = self.value(rule["positive"]), self.value(rule["error"])
            if abs(mean) < 2 * error:
                raise Unknown(f"{number_text(mean)} is within two standard errors ({number_text(error)}) of 0")
            return mean > 0
        rising = "rising" in rule
        numbers = self.series(rule["rising" if rising else "falling"])
        if len(numbers) < 2:
            raise Unknown("it needs two rows")
        return all((a < b) if rising else (a > b) for a, b in zip(numbers, numbers[1:]))

    def weakest(self):
        return min((row["evidence"] for row in self.rows), key=STRENGTH.get)


def number_text(number):
    return number if isinstance(number, str) else f"{number:.4g}" if isinstance(number, float) else f"{number:,}"


def judge(claim, tables):
    """The Verdict of a claim. `tables`: the JSON of tables by name, of one machine."""
    if "not_ours" in claim:
        return Verdict(claim, NOT_MEASURABLE, "", claim["not_ours"])
    evaluation = Evaluation(tables)
    try:
        holds = evaluation.holds(claim["rule"])
    except Unknown as reason:
        return Verdict(claim, NOT_MEASURABLE, "", str(reason))
    own = ", ".join(map(number_text, evaluation.numbers))
    evidence = evaluation.weakest()
    # A claim that needs no measured value is not about time, which load from elsewhere changes.
    if claim["evidence"] == "measured" and any(row.get("busy") for row in evaluation.rows):
        return Verdict(claim, NOT_MEASURABLE, own, "other programs were using the machine")
    if claim.get("quality") and any(len(str(row["seed"]).split(",")) < 2 for row in evaluation.rows):
        return Verdict(claim, NOT_MEASURABLE, own, "one seed gives no verdict")
    if evidence == "simulated" and claim["evidence"] == "simulated":
        return Verdict(claim, SIMULATED_ONLY, own, "holds in the plan" if holds else "does not hold in the plan")
    if STRENGTH[evidence] < STRENGTH[claim["evidence"]]:
        return Verdict(claim, NOT_MEASURABLE, own, f"only {evidence} here; it needs {claim['evidence']} values")
    return Verdict(claim, CONFIRMED if holds else REFUTED, own, evidence)
