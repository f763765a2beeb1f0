"""The random cases: which model, which shape, which way to train. A case is a flat record that JSON can hold.

Case number i of a seed is always the same case, whatever else is drawn. Shapes are small, legal, and odd enough that
two formulas which differ give different bytes. Nothing is computed with them, so they may be larger than the machine.
"""
import dataclasses
import math
import random

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "gpt2", "phi3", "mixtral")
PRECISIONS = ("fp32", "autocast", "bf16")        # autocast: f32 weights, bf16 regions; bf16: everything is bf16
OPTIMIZERS = ("adamw-foreach", "adamw-fused", "sgd")  # offload and quantized weights have others
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
    tied: bool             # the head is the embedding
    window: int            # tokens of sliding attention, in Gemma of every second layer from the first; 0: none
    experts: int           # 0: no mixture of experts
    experts_per_token: int
    softcap: float         # scores are capped with tanh; 0: not
    final_softcap: float   # logits are capped with tanh; 0: not
    dropout: float         # of GPT-2: embedding, probabilities, both outputs of a layer
    attention: str         # eager | sdpa
    checkpoint: bool       # each layer is recomputed in the backward pass
    precision: str
    optimizer: str
    lora: int              # rank; 0: full training
    lora_targets: str      # "" without
    lora_dropout: float
    batch: int             # sequences per micro-batch
    sequence: int          # tokens per sequence
    accumulate: int        # micro-batches per step
    fsdp: dict | None = None   # fsdp.py; None: one device
    zero: dict | None = None   # zero.py
    tune: dict | None = None   # tune.py; None: not torchtune
    litgpt: dict | None = None # lit.py; None: not litgpt
    quantized: dict | None = None  # quantized.py; None: no quantized weights
    reentrant: bool | None = None  # kind of the checkpoints; None: not
    liger: bool | None = None      # liger.py; None: no kernels of Liger
    cut: bool | None = None        # cut.py; None: no Cut Cross Entropy
    ranks: dict | None = None      # rank_pattern of peft; None: all adapters have the rank `lora`
    factory: bool | None = None    # step.py; None: the model computes the loss
    axolotl: list | None = None    # adapter_kernels.py; None: not trained by axolotl
    dpo: dict | None = None        # preferences.py; None: not trained by preferences
    fused: bool | None = None      # fused_head.py; None: not with the fused head of TRL
    release: str | None = None     # of transformers, as "4.48"; None: that of README.md

    @staticmethod
    def from_json(record: dict):
        return Case(**record)

    def as_json(self) -> dict:
        record = dataclasses.asdict(self)
        return {k: v for k, v in record.items() if v is not None}


# What --kind names: the function that draws case `number` of a seed. The modules draw_*.py add theirs.
KINDS = {}


def kind(name: str):
    """Gives a function that draws cases its name of --kind."""
    def add(draw):
        KINDS[name] = draw
        return draw
    return add


def between(r: random.Random, low: int, high: int, multiple: int = 1) -> int:
    """A multiple in [low, high], small ones as likely as large ones (log-uniform)."""
    value = low * (high / low) ** r.random()
    return max(-(-low // multiple) * multiple, int(value) // multiple * multiple)


def draw_heads(r: random.Random, family: str) -> tuple:
    """(heads, key and value heads)"""
    if family == "gpt2":
        heads = r.randint(2, 10)
        return heads, heads
    kv = r.choice([1, 2, 3, 4])
    return kv * r.choice([1, 2, 3, 4]), kv


def setting(number: int) -> dict:
    """The fields that choose code paths. 216 successive cases hold each combination of family, attention, checkpointing,
    precision and LoRA once; the next 216 hold them with another optimizer. transformers has no sdpa for Gemma 2."""
    family = number % len(FAMILIES)
    rest = (number // len(FAMILIES) * 7 + family * 5) % 24
    way = rest % 8
    return {
        "family": FAMILIES[family],
        "attention": ("eager", "sdpa")[way & 1 if FAMILIES[family] != "gemma2" else 0],
        "checkpoint": bool(way & 2),
        "lora": bool(way & 4),
        "precision": PRECISIONS[rest % 3],
        "optimizer": OPTIMIZERS[(number // 216 + way + family) % 3],
    }


@kind("device")
def draw(seed: int, number: int) -> Case:
    """Case `number` of a seed."""
    r = random.Random(f"{seed}/{number}")
    chosen = setting(number)
    family, lora = chosen["family"], chosen.pop("lora")
    heads, kv = draw_heads(r, family)
    # grouped_mm needs rows of 16 bytes, so the width of Mixtral is a multiple of 8.
    head_dim = r.choice([16, 24, 32, 40, 64, 80, 96, 128] + ([20, 36] if family != "mixtral" else []))
    # The width of these families follows from the heads; the others choose it.
    tied_width = family in ("gpt2", "phi3", "qwen2") or (family in ("llama", "mixtral") and r.random() < 0.5)
    hidden = heads * head_dim if tied_width else between(r, 64, 1536, math.lcm(heads, 8))
    experts = r.choice([2, 3, 4, 8]) if family == "mixtral" else 0
    return Case(
        **chosen,
        layers=r.choice([2, 2, 3]),
        hidden=hidden,
        intermediate=4 * hidden if family == "gpt2" and r.random() < 0.5 else between(r, 64, 4096, 8),
        heads=heads,
        kv_heads=kv,
        head_dim=head_dim,
        vocab=between(r, 500, 60000),
        tied=family in ("gemma2", "gemma3", "gpt2") or r.random() < 0.3,
        window=between(r, 64, 1024) if family in ("mistral", "gemma2", "gemma3", "phi3") and r.random() < 0.5 else 0,
        experts=experts,
        experts_per_token=r.randint(1, min(3, experts)) if experts else 0,
        softcap=50.0 if family == "gemma2" else 0.0,
        final_softcap=30.0 if family == "gemma2" else 0.0,
        dropout=r.choice([0.0, 0.1]) if family == "gpt2" else 0.0,
        lora=r.choice([4, 8, 12, 16, 32]) if lora else 0,
        lora_targets=r.choice(TARGETS) if lora else "",
        lora_dropout=r.choice([0.0, 0.05]) if lora else 0.0,
        batch=r.randint(1, 5),
        sequence=between(r, 48, 1500),
        accumulate=r.choice([1, 1, 1, 2, 3]),
    )

# What a model is, in contrast to how it is trained.
MODEL_FIELDS = ("family", "layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "tied", "window", "experts",
                "experts_per_token", "softcap", "final_softcap", "dropout")
