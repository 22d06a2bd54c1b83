"""The modes in which infer_gpt2 generates, as these scripts write them: DTYPE[+QUANT][+kv8], such as bf16+w8a8+kv8."""
from typing import NamedTuple


class Variant(NamedTuple):
    dtype: str
    quant: str = "none"  # --quant
    kv8: bool = False  # an INT8 cache

    @staticmethod
    def parse(text):
        dtype, *modes = text.split("+")
        kv8 = modes[-1:] == ["kv8"]
        quant, = (modes[:-1] if kv8 else modes) or ["none"]
        return Variant(dtype, quant, kv8)

    def __str__(self):
        return "+".join([self.dtype, *([self.quant] if self.quant != "none" else []), *(["kv8"] if self.kv8 else [])])

    @property
    def is_quantized(self):
        return self.quant != "none" or self.kv8

    @property
    def flags(self):
        """Flags of infer_gpt2."""
        return ["--dtype", self.dtype, "--quant", self.quant, *(["--kv-dtype", "int8"] if self.kv8 else [])]


def variants_of(text):
    """The variants of a list such as bf16,bf16+w8."""
    return [Variant.parse(word) for word in text.split(",")]
