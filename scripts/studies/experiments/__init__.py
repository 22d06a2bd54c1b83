"""The experiments, in the order in which `all` makes them."""
from studies.experiments.scaling import Strong, Weak
from studies.experiments.strategies import Strategies

EXPERIMENTS = {experiment.name: experiment for experiment in (Strong(), Weak(), Strategies())}
