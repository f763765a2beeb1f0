"""The random cases: which model, which shape, which way to train. A case is a flat record that JSON can hold.

Case number i of a seed is always the same case, whatever else is drawn. Shapes are small, legal, and odd enough that
two formulas which differ give different bytes. Nothing is computed with them, so they may be larger than the machine.
"""
import dataclasses
import random

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "gpt2", "phi3", "mixtral")
PRECISIONS = ("fp32", "autocast", "bf16")        # autocast: f32 weights, bf16 regions; bf16: everything is bf16
OPTIMIZERS = ("adamw-foreach", "adamw-fused", "sgd")
# What LoRA is added to. `all`: every linear layer but the head, as peft's "all-linear".
TARGETS = ("qv", "all")


@dataclasses.dataclass
class Case:
    """One training run. Sizes are elements, tokens or counts; docs/memory-model.md has the symbols."""

    family: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    window: int            # tokens of sliding attention; 0: none
    experts: int           # 0: no mixture of experts
    experts_per_token: int
    dropout: float         # of GPT-2, in its three places
    attention: str         # eager | sdpa
    checkpoint: bool       # each layer is recomputed in the backward pass
    precision: str
    optimizer: str
    lora: int              # rank; 0: full training
    targets: str           # of LoRA; "" without
    batch: int             # sequences per micro-batch
    sequence: int          # tokens per sequence
    accumulate: int        # micro-batches per step

    @staticmethod
    def from_json(record: dict):
        return Case(**record)

    def as_json(self) -> dict:
        return dataclasses.asdict(self)


def between(r: random.Random, low: int, high: int, multiple: int = 1) -> int:
    """A multiple in [low, high], small ones as likely as large ones (log-uniform)."""
    value = low * (high / low) ** r.random()
    return max(low, int(value) // multiple * multiple)


def draw_heads(r: random.Random, family: str) -> tuple:
    """(heads, key and value heads)"""
    if family == "gpt2":
        heads = r.randint(2, 10)
        return heads, heads
    kv = r.choice([1, 2, 3, 4])
    return kv * r.choice([1, 2, 3, 4]), kv


def draw(seed: int, number: int) -> Case:
    """Case `number` of a seed."""
    r = random.Random(f"{seed}/{number}")
    family = FAMILIES[number % len(FAMILIES)]
    heads, kv = draw_heads(r, family)
    head_dim = r.choice([16, 20, 24, 32, 36, 40, 64, 80, 96, 128])
    # The width of these families follows from the heads; the others choose it.
    tied_width = family in ("gpt2", "phi3", "qwen2") or (family in ("llama", "mixtral") and r.random() < 0.5)
    hidden = heads * head_dim if tied_width else between(r, 64, 1536, 8)
    lora = r.choice([4, 8, 12, 16, 32]) if r.random() < 0.25 else 0
    experts = r.choice([2, 3, 4, 8]) if family == "mixtral" else 0
    return Case(
        family=family,
        layers=r.randint(2, 4),
        hidden=hidden,
        intermediate=4 * hidden if family == "gpt2" and r.random() < 0.5 else between(r, 64, 4096, 8),
        heads=heads,
        kv_heads=kv,
        head_dim=head_dim,
        vocab=between(r, 500, 60000),
        tied=family in ("gemma2", "gemma3", "gpt2") or r.random() < 0.3,
        window=between(r, 64, 1024) if family in ("mistral", "gemma2", "gemma3") and r.random() < 0.5 else 0,
        experts=experts,
        experts_per_token=r.randint(1, min(3, experts)) if experts else 0,
        dropout=r.choice([0.0, 0.1]) if family == "gpt2" else 0.0,
        attention=r.choice(["eager", "sdpa"]),
        checkpoint=r.random() < 0.4,
        precision=r.choice(PRECISIONS),
        optimizer=r.choice(OPTIMIZERS),
        lora=lora,
        targets=r.choice(TARGETS) if lora else "",
        batch=r.randint(1, 5),
        sequence=between(r, 48, 1500),
        accumulate=r.choice([1, 1, 2, 3]),
    )
