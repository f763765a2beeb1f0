"""The measured models, their tokens per step and their targets.

Every column of a row trains the same model: LLaMA, tied head, one head dimension for queries, keys and values.
"""
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Targets:
    """Target ratios of a row; not measurements."""
    ceiling: float  # ours / ceiling, at least
    peer: float     # ours / torch 1.13 in fp32, at least
    memory: float   # peak resident ours / torch 1.13 in fp32, at most


@dataclass(frozen=True)
class Row:
    name: str
    hidden: int         # H
    layers: int         # L
    heads: int          # A; there are as many key and value heads
    intermediate: int   # I
    vocab: int          # V
    batch: int          # B, sequences per step
    seq: int            # S, tokens per sequence
    targets: Optional[Targets] = None
    scaling: bool = False  # also measure with one thread

    @property
    def tokens(self) -> int:
        """Tokens per step, B*S."""
        return self.batch * self.seq

    @property
    def parameters(self) -> int:
        """V*H + L*(4*H*H + 3*H*I + 2*H) + H: embedding (also the head), layers with two norms, final norm."""
        h = self.hidden
        return self.vocab * h + self.layers * (4 * h * h + 3 * h * self.intermediate + 2 * h) + h

    @property
    def flops(self) -> int:
        """FLOPs per step: 6 per matrix element and token, plus the causal half of attention."""
        h = self.hidden
        matrices = self.vocab * h + self.layers * (4 * h * h + 3 * h * self.intermediate)
        return (6 * matrices + 6 * self.layers * self.seq * h) * self.tokens


ROWS = {r.name: r for r in [
    #                H   L   A  I     V      B  S
    Row("byte-tiny",  256, 4, 4, 704, 256, 8, 256, Targets(0.92, 3.8, 0.20)),
    Row("stories15M", 288, 6, 6, 768, 32000, 8, 256, Targets(0.95, 2.9, 0.40)),
    Row("42M",        512, 8, 8, 1376, 32000, 1, 1024, Targets(0.90, 4.0, 0.50)),
    Row("110M",       768, 12, 12, 2048, 32000, 1, 1024, Targets(0.90, 3.7, 0.58), scaling=True),
]}

# For --quick: a model so small that a run takes seconds. Its figures mean nothing.
QUICK = Row("quick", 64, 2, 2, 176, 256, 2, 64, scaling=True)

# Assumed FLOP/s, used only to choose the number of steps.
ASSUMED_FLOPS = 150e9


def steps_of(row: Row, seconds: float) -> int:
    """Number of steps that takes about `seconds` at the assumed rate, 3 to 60."""
    return max(3, min(60, int(seconds * ASSUMED_FLOPS / row.flops)))
