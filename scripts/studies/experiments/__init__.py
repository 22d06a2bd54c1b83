"""The experiments, in the order in which `all` makes them."""
from studies.experiments.attention import Flash, Recompute
from studies.experiments.base import Base
from studies.experiments.convergence import Batch, ModelSize
from studies.experiments.demo import Demo
from studies.experiments.finetune import Finetune
from studies.experiments.fits import Fits
from studies.experiments.megatron import Megatron
from studies.experiments.precision import Precision
from studies.experiments.quantize import Quantize
from studies.experiments.scaling import Strong, Weak
from studies.experiments.stack import Stack
from studies.experiments.strategies import Strategies
from studies.experiments.zero import Zero

EXPERIMENTS = {experiment.name: experiment for experiment in (
    Base(), Strategies(), Strong(), Weak(), Zero(), Fits(), Megatron(), Flash(), Recompute(), Precision(), Batch(), ModelSize(), Finetune(), Stack(),
    Quantize(), Demo())}
