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


# Families, and policies as (weights, type of the gathered weights, of the reduction, of the outputs).
FSDP_FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "phi3", "mixtral")
FSDP_POLICIES = (("fp32", "bf16", "f32", ""), ("fp32", "bf16", "bf16", "bf16"), ("fp32", "", "", ""), ("bf16", "", "", ""),
                 ("fp32", "bf16", "", ""))


def draw_fsdp(seed: int, number: int) -> Case:
    """Case `number` of a seed under FSDP2: the model of another case, trained as a whole, without autocast."""
    r = random.Random(f"fsdp/{seed}/{number}")
    family = FSDP_FAMILIES[number % len(FSDP_FAMILIES)]
    base = draw(seed, number // len(FSDP_FAMILIES) * 9 + FAMILIES.index(family) + 1000 * 9)
    precision, param, reduce, output = FSDP_POLICIES[number % len(FSDP_POLICIES)]
    return dataclasses.replace(
        base, precision=precision, lora=0, lora_targets="", lora_dropout=0.0,
        attention=("sdpa", "eager")[number % 4 == 3], checkpoint=bool(number % 7 % 2),
        optimizer=OPTIMIZERS[number // 5 % 3], accumulate=r.choice([1, 1, 2, 3]),
        fsdp={"world": r.randint(2, 8), "param": param, "reduce": reduce, "output": output,
              "reshard": r.random() < 0.75, "sync": r.choice(["every", "last"])})


def draw_accelerate(seed: int, number: int) -> Case:
    """Case `number` of a seed under FSDP2 as accelerate prepares it: in bf16, in f32, or with weights in bf16 alone."""
    r = random.Random(f"accelerate/{seed}/{number}")
    case = draw_fsdp(seed + 1, number)
    policy = ("bf16", "bf16", "bf16", "")[number // 6 % 4]
    return dataclasses.replace(
        case, precision="fp32" if policy or number % 2 else "bf16", optimizer=("adamw-fused", *OPTIMIZERS)[number // 5 % 4],
        fsdp={"world": r.randint(2, 8), "param": policy, "reduce": policy, "output": policy,
              "reshard": r.random() < 0.75, "sync": "last", "prepare": "accelerate"})


# Types of the base, and in which weights are gathered, gradients reduced and outputs cast; "": in their own.
LORA_TYPES = (("fp32", "bf16"), ("bf16", "bf16"), ("fp32", ""), ("bf16", ""))


def draw_accelerate_lora(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters under FSDP2 as accelerate prepares it. Half of the cases have few tokens, so that
    gathered weights set their peaks, not logits."""
    few = number % 2 == number // 12 % 2
    r = random.Random(f"accelerate/lora/{seed}/{number}")
    case = draw_accelerate(seed + 2, number)
    turn = number // len(FSDP_FAMILIES)
    precision, policy = LORA_TYPES[(turn + number) % len(LORA_TYPES)]
    return dataclasses.replace(
        case, precision=precision, checkpoint=r.random() < 0.5, lora=r.choice([4, 8, 12, 16, 32]),
        lora_targets=TARGETS[(turn // 2 + number) % 2], lora_dropout=r.choice([0.0, 0.05]),
        accumulate=1 + turn % 3, batch=1 if few else case.batch,
        sequence=between(r, 4, max(8, case.hidden // 16)) if few else case.sequence,
        vocab=between(r, 20000, 60000) if few else case.vocab,
        fsdp=case.fsdp | {"param": policy, "reduce": policy, "output": policy, "reshard": r.random() < 0.7})


def draw_flat(seed: int, number: int) -> Case:
    """Case `number` of a seed under FSDP1 as accelerate prepares it. Mixed precision has f32 shards, also of a model that was
    loaded in bf16, whose first step keeps shards in bf16 besides with use_orig_params."""
    r = random.Random(f"flat/{seed}/{number}")
    case = draw_accelerate(seed + 3, number)
    turn = number // len(FSDP_FAMILIES)
    accumulate, reshard, sync = r.choice([1, 1, 2, 3]), r.random() < 0.7, r.choice(["last", "last", "every"])
    original, forward = r.random() < 0.6, r.random() < 0.3
    loaded = ("fp32", "bf16")[number % 5 == 4 and not original]
    return dataclasses.replace(
        case, checkpoint=bool((turn + number) % 2), accumulate=accumulate,
        precision=loaded if case.fsdp["param"] else case.precision,
        fsdp=case.fsdp | {"output": "", "reshard": reshard, "sync": sync,
                          "flat": {"orig": original, "backward": ("", "pre", "post")[(turn + number) % 3],
                                   "forward": forward}})


def draw_flat_lora(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters under FSDP1 as accelerate prepares it, over a base in f32 or bf16. Half of the cases
    have few tokens, so that gathered weights set their peaks."""
    r = random.Random(f"flat/lora/{seed}/{number}")
    case = draw_flat(seed + 4, number)
    turn = number // len(FSDP_FAMILIES)
    precision, policy = LORA_TYPES[(turn + number) % len(LORA_TYPES)]
    few = (turn + number) % 2
    return dataclasses.replace(
        case, precision=precision, checkpoint=r.random() < 0.6, lora=r.choice([4, 8, 12, 16, 32]),
        lora_targets=TARGETS[(turn // 2 + number) % 2], lora_dropout=r.choice([0.0, 0.05]),
        batch=1 if few else case.batch, sequence=between(r, 16, 80) if few else case.sequence,
        fsdp=case.fsdp | {"param": policy, "reduce": policy})


def draw_titan(seed: int, number: int) -> Case:
    """Case `number` of a seed with the modules of torchtitan."""
    r = random.Random(f"titan/{seed}/{number}")
    heads, kv = draw_heads(r, "llama")
    hidden = heads * r.choice([16, 32, 64, 80, 128])
    base = dataclasses.replace(draw_fsdp(seed, 0), attention="sdpa", checkpoint=False, precision="fp32")
    return dataclasses.replace(
        base, layers=r.choice([2, 3, 4]), hidden=hidden, heads=heads, kv_heads=kv, head_dim=hidden // heads,
        intermediate=-(-int(2 * 4 * hidden / 3) // 64) * 64, vocab=between(r, 500, 60000), tied=False,
        optimizer=OPTIMIZERS[number // 3 % 2], batch=r.randint(1, 4), sequence=between(r, 48, 1500),
        accumulate=r.choice([1, 1, 2]),
        fsdp={"world": r.randint(2, 8), "param": "bf16", "reduce": "f32", "output": "",
              "reshard": r.random() < 0.75, "sync": "every", "modules": "torchtitan",
              "recompute": ("selective", "full", "none")[number % 3]})


def draw_titan_2024(seed: int, number: int) -> Case:
    """Case `number` of a seed as torchtitan was in December 2024."""
    case = draw_titan(f"{seed}/2024", number)
    return dataclasses.replace(case, fsdp=case.fsdp | {"release": "0.0", "reshard": True})


def draw_titan_tensor(seed: int, number: int) -> Case:
    """Case `number` of a seed as torchtitan was in December 2024, on 2 tensor-parallel ranks."""
    r = random.Random(f"titan/tensor/{seed}/{number}")
    case = draw_titan_2024(seed, number)
    heads, head_dim = r.choice([4, 8]), r.choice([16, 32, 64])
    return dataclasses.replace(
        case, heads=heads, kv_heads=r.choice([2, 4]), head_dim=head_dim, hidden=heads * head_dim,
        intermediate=-(-int(2 * 4 * heads * head_dim / 3) // 64) * 64, vocab=case.vocab // 2 * 2,
        sequence=case.sequence // 2 * 2, accumulate=1,
        fsdp=case.fsdp | {"tensor": 2, "world": r.choice([2, 4]), "recompute": ("full", "none")[number % 2]})


def draw_titan_qwen3(seed: int, number: int) -> Case:
    """Case `number` of a seed with Qwen3 of torchtitan."""
    r = random.Random(f"titan/qwen3/{seed}/{number}")
    heads, kv = r.choice([(4, 2), (8, 2), (8, 4), (8, 8), (6, 2)])
    return dataclasses.replace(
        draw_titan(f"{seed}/qwen3", number), family="qwen3", heads=heads, kv_heads=kv,
        head_dim=r.choice([16, 32, 64, 128]), hidden=r.choice([128, 192, 256, 384]),
        intermediate=r.choice([192, 320, 512, 768, 1024]), tied=r.random() < 0.5)


def draw_titan_experts(seed: int, number: int) -> Case:
    """Case `number` of a seed with Qwen3-MoE or DeepSeek V3 of torchtitan, every second with expert parallelism, but not
    with selective checkpointing: torch 2.15 stops where FSDP2 gathers inside of such a region."""
    r = random.Random(f"titan/experts/{seed}/{number}")
    case = draw_titan_qwen3(f"{seed}/experts", number)
    latent = number % 2 == 1
    recompute = ("full", "none", "selective")[number // 4 % 3]
    ranks = r.choice([2, 4]) if number // 2 % 2 and recompute != "selective" else 1
    moe = {"ep": ranks, "scores": "softmax", "shared": 0}
    if latent:
        moe |= {"scores": r.choice(["softmax", "sigmoid"]), "shared": r.choice([1, 2]), "dense": 1,
                "dense_width": r.choice([192, 320, 512]), "q_rank": r.choice([0, 48, 96]), "kv_rank": r.choice([32, 64]),
                "nope": r.choice([16, 32]), "rope": r.choice([8, 16])}
    experts = r.choice([4, 8, 16])
    return dataclasses.replace(
        case, family="deepseek_v3" if latent else "qwen3_moe", experts=experts, experts_per_token=r.choice([1, 2, 4]),
        kv_heads=case.heads if latent else case.kv_heads, head_dim=r.choice([16, 32]) if latent else case.head_dim,
        intermediate=r.choice([64, 96, 128, 192]), tied=False, sequence=between(r, 48, 800) // 8 * 8,
        vocab=between(r, 100, 600),
        fsdp=case.fsdp | {"world": ranks * r.choice([1, 2]) if ranks > 1 else r.choice([2, 4, 6]), "moe": moe,
                          "recompute": recompute})


def draw_titan_llama4(seed: int, number: int) -> Case:
    """Case `number` of a seed with Llama 4 of torchtitan: without and with expert parallelism, then with 2 tensor-parallel
    ranks too."""
    r = random.Random(f"titan/llama4/{seed}/{number}")
    case = draw_titan(f"{seed}/llama4", number)
    parallel, tensor = bool(number % 2), 1 + number // 2 % 2
    recompute = ("full", "none", "selective")[number // 4 % 3]
    if parallel and recompute == "selective":
        recompute = "full"
    heads, head_dim = r.choice([4, 8]), r.choice([16, 32])
    hidden = heads * head_dim
    ranks = r.choice([2, 4]) if parallel else 1
    inside = max(1, ranks // tensor)
    return dataclasses.replace(
        case, family="llama4", heads=heads, kv_heads=r.choice([2, 4]), head_dim=head_dim, hidden=hidden,
        intermediate=-(-int(2 * 4 * hidden / 3) // 64) * 64, experts=r.choice([4, 8]), experts_per_token=r.choice([1, 2]),
        vocab=between(r, 100, 600) // 2 * 2, sequence=between(r, 48, 800) // 8 * 8, accumulate=1,
        fsdp=case.fsdp | {"world": inside * r.choice([1, 2]) if inside > 1 else 2, "tensor": tensor,
                          "moe": {"ep": ranks, "shared": 1, "step": r.choice([1, 2])}, "recompute": recompute})


def draw_titan_latent(seed: int, number: int) -> Case:
    """Case `number` of a seed with DeepSeek V3 of torchtitan on 2 tensor-parallel ranks, every second with expert
    parallelism."""
    r = random.Random(f"titan/latent/{seed}/{number}")
    case = draw_titan_experts(f"{seed}/latent", 2 * number + 1)
    moe, heads = case.fsdp["moe"], r.choice([4, 8])
    ranks = r.choice([2, 4]) if number % 2 else 1
    return dataclasses.replace(
        case, heads=heads, kv_heads=heads, vocab=case.vocab // 2 * 2, accumulate=1,
        fsdp=case.fsdp | {"world": max(1, ranks // 2) * 2, "tensor": 2, "moe": moe | {"ep": ranks},
                          "recompute": ("full", "none")[number // 2 % 2]})


def draw_titan_layers(seed: int, number: int) -> Case:
    """Case `number` of a seed with Llama or Qwen3 of torchtitan that recomputes every second or third layer."""
    case = draw_titan_qwen3(f"{seed}/layers", number) if number % 2 else draw_titan(f"{seed}/layers", number)
    return dataclasses.replace(case, fsdp=case.fsdp | {"recompute": ("2", "3")[number // 2 % 2]})


def draw_titan_tensor_02(seed: int, number: int) -> Case:
    """Case `number` of a seed with Llama or Qwen3 of torchtitan 0.2 on 2 tensor-parallel ranks."""
    r = random.Random(f"titan/tensor/0.2/{seed}/{number}")
    case = draw_titan_qwen3(f"{seed}/tensor", number)
    heads, head_dim = r.choice([4, 8]), r.choice([16, 32, 64])
    sizes = {} if number % 2 else {"family": "llama", "head_dim": head_dim, "hidden": heads * head_dim, "tied": False,
                                   "intermediate": -(-int(2 * 4 * heads * head_dim / 3) // 64) * 64}
    return dataclasses.replace(
        case, heads=heads, kv_heads=r.choice([2, 4]), vocab=case.vocab // 2 * 2, sequence=case.sequence // 2 * 2, **sizes,
        accumulate=1, fsdp=case.fsdp | {"tensor": 2, "world": r.choice([2, 4]),
                                        "recompute": ("full", "none", "selective")[number // 2 % 3]})


ZERO_FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "phi3", "mixtral", "gemma2", "gemma3")
ZERO3_FAMILIES = tuple(f for f in ZERO_FAMILIES if f != "mixtral")


def under_deepspeed(r: random.Random, seed: int, number: int, families: tuple, first: int, cycle: int) -> tuple:
    """(case, ranks): the model of a case after `first`, trained as a whole, with checkpointing in every second of
    `cycle` cases."""
    family = families[number % len(families)]
    base = draw(seed, number // len(families) * 9 + FAMILIES.index(family) + first)
    world = r.randint(2, 8)
    return dataclasses.replace(
        base, precision=("bf16", "bf16", "fp32")[number % 3], lora=0, lora_targets="", lora_dropout=0.0,
        attention="eager" if family == "gemma2" else ("sdpa", "eager")[number % 4 == 3],
        checkpoint=bool(number % cycle % 2), optimizer=OPTIMIZERS[number // 5 % 2],
        accumulate=r.choice([1, 1, 2, 3])), world


def draw_zero(seed: int, number: int) -> Case:
    """Case `number` of a seed under DeepSpeed's stages 1 and 2. The bucket has a size that some gradients exceed, that a
    few fill, or that holds all of them."""
    r = random.Random(f"zero/{seed}/{number}")
    case, world = under_deepspeed(r, seed, number, ZERO_FAMILIES, 2000 * 9, 7)
    return dataclasses.replace(
        case, zero={"stage": r.choice([1, 2]), "world": world, "rank": r.randrange(world),
                    "bucket": between(r, 50_000, 8_000_000), "overlap": r.random() < 0.5, "groups": r.choice([1, 2])})


def draw_zero3(seed: int, number: int) -> Case:
    """Case `number` of a seed under stage 3. Sizes are such that each rule matters: some parameters stay, some are gathered
    early, some are used again soon enough."""
    r = random.Random(f"zero3/{seed}/{number}")
    case, world = under_deepspeed(r, seed, number, ZERO3_FAMILIES, 3000 * 9, 5)
    return dataclasses.replace(
        case, zero={"stage": 3, "world": world, "rank": r.randrange(world), "bucket": between(r, 50_000, 8_000_000),
                    "overlap": True, "groups": r.choice([1, 2]), "sub_group": between(r, 20_000, 5_000_000),
                    "prefetch": r.choice([0, between(r, 1_000, 1_000_000), between(r, 100_000, 50_000_000)]),
                    "persistence": r.choice([0, between(r, 500, 500_000)]),
                    "max_live": r.choice([between(r, 100_000, 10_000_000), 1_000_000_000]),
                    "reuse": r.choice([0, between(r, 100_000, 10_000_000), 1_000_000_000])})


def draw_zero_lora(seed: int, number: int) -> Case:
    """Case `number` of a seed under stage 1 or 2 of DeepSpeed with adapters. The bucket has a size that some gradients exceed,
    that a few fill, or that holds all of them."""
    r = random.Random(f"zero/lora/{seed}/{number}")
    case = draw_zero(f"{seed}/lora", number)
    return dataclasses.replace(
        case, lora=r.choice([4, 8, 12, 16, 32]), lora_targets=TARGETS[number % 2], lora_dropout=r.choice([0.0, 0.05]),
        zero=case.zero | {"bucket": between(r, 3_000, 1_000_000)})


def draw_zero3_lora(seed: int, number: int) -> Case:
    """Case `number` of a seed under stage 3 of DeepSpeed with adapters."""
    r = random.Random(f"zero3/lora/{seed}/{number}")
    case = draw_zero3(f"{seed}/lora", number)
    return dataclasses.replace(
        case, lora=r.choice([4, 8, 12, 16, 32]), lora_targets=TARGETS[number % 2], lora_dropout=r.choice([0.0, 0.05]),
        zero=case.zero | {"bucket": between(r, 3_000, 1_000_000), "sub_group": between(r, 1_000, 500_000)})


def draw_offload(seed: int, number: int) -> Case:
    """Case `number` of a seed with offload: in turn the optimizer under stage 1, 2 and 3, both and the parameters alone
    under stage 3. Every third case has adapters."""
    r = random.Random(f"offload/{seed}/{number}")
    way = number % 5
    lora = number // 5 % 3 == 2
    draw = (draw_zero_lora if lora else draw_zero) if way < 2 else draw_zero3_lora if lora else draw_zero3
    case = draw(f"{seed}/offload", number)
    offload = {"optimizer": way != 4, "param": way > 2, "pin": r.random() < 0.7}
    stage = {"stage": way + 1} if way < 2 else {}
    # With few tokens gradients and weights set the peaks, not logits.
    few = {"batch": 1, "sequence": between(r, 4, 64)} if number % 4 else {}
    return dataclasses.replace(case, optimizer="adamw-cpu" if offload["optimizer"] else case.optimizer,
                               zero=case.zero | stage | {"offload": offload}, **few)


def draw_tune(seed: int, number: int) -> Case:
    """Case `number` of a seed with the modules of torchtune."""
    r = random.Random(f"tune/{seed}/{number}")
    heads, kv = draw_heads(r, "llama")
    # A block of block scales of NF4 has 64 * 256 elements; every weight is a multiple of it.
    nf4 = number % 3 == 2
    head_dim, multiple = (r.choice([64, 128]), 256) if nf4 else (r.choice([16, 32, 64, 80, 128]), 8)
    heads, kv = (4, r.choice([2, 4])) if nf4 else (heads, kv)
    hidden, lora, loss = heads * head_dim, number % 3 > 0, ("plain", "chunked", "linear")[number // 3 % 3]
    in_backward = not lora and number // 9 % 2 == 1
    targets = r.choice(["qv", "most", "all"]) + r.choice(["", "+mlp"])
    base = dataclasses.replace(draw(seed, 0), attention="sdpa", precision="bf16", window=0)
    return dataclasses.replace(
        base, family="llama", layers=r.choice([2, 3, 4]), hidden=hidden, heads=heads, kv_heads=kv, head_dim=head_dim,
        intermediate=between(r, 256 if nf4 else 64, 4096, multiple), vocab=between(r, 500, 60000), tied=r.random() < 0.4,
        optimizer=OPTIMIZERS[number // 2 % 3], checkpoint=r.random() < 0.6, batch=r.randint(1, 4),
        sequence=between(r, 48, 1500), accumulate=1 if in_backward else r.choice([1, 1, 2]),
        lora=r.choice([4, 8, 16, 64]) if lora else 0, lora_targets=targets if lora else "", lora_dropout=0.0,
        fsdp={"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": r.random() < 0.75,
              "sync": "every"} if number >= 54 and not nf4 and not in_backward else None,
        tune={"loss": loss, "in_backward": in_backward, "nf4": nf4, "packed": r.random() < 0.5})


def draw_tune_moved(seed: int, number: int) -> Case:
    """Case `number` of a seed with the recipes of torchtune until August 2024: every third one, and those whose optimizer is
    part of the backward pass, on one device, the others under FSDP1."""
    r = random.Random(f"tune/moved/{seed}/{number}")
    case = draw_tune(f"{seed}/moved", number // 2 * 3 + number % 2)
    flat = {"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": True, "sync": "every",
            "flat": {"orig": False, "backward": "pre", "forward": False}}
    in_backward = case.tune["in_backward"]
    return dataclasses.replace(case, tied=False, fsdp=None if in_backward or number % 3 == 0 else flat,
                               tune={"loss": "moved", "in_backward": in_backward, "nf4": False, "packed": False})


def draw_tune_qwen(seed: int, number: int) -> Case:
    """Case `number` of a seed with Qwen 2 or 3 of torchtune, in bf16, on one device; half of the cases have few words."""
    r = random.Random(f"tune/qwen/{seed}/{number}")
    case = draw_tune(f"{seed}/qwen", number // 2 * 3 + number // 2 % 2)
    few = {"vocab": between(r, 100, 300)} if number // 2 % 2 else {}
    return dataclasses.replace(case, family=("qwen2", "qwen3")[number % 2], fsdp=None, tune=case.tune | {"nf4": False}, **few)


def draw_tune_gemma(seed: int, number: int) -> Case:
    """Case `number` of a seed with Gemma, Gemma 2 or Phi-3 of torchtune, in bf16, from 36 on under FSDP2; half of the cases
    have few words. The hidden state of Gemma need not have the width of its heads."""
    r = random.Random(f"tune/gemma/{seed}/{number}")
    family, each = ("gemma", "gemma2", "phi3")[number % 3], number // 3
    case = draw_tune(f"{seed}/gemma", each * 3 + each % 2)
    few = {"vocab": between(r, 100, 300)} if each % 2 else {}
    fsdp = {"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": r.random() < 0.75, "sync": "every"}
    few |= {"fsdp": None if number < 36 or case.tune["in_backward"] else fsdp}
    if family == "phi3":
        return dataclasses.replace(case, family=family, tied=False, tune=case.tune | {"nf4": False}, **few)
    # Gemma 2 computes scores of S x S, and takes no packed rows.
    own = {"sequence": between(r, 48, 600), "window": between(r, 16, 600), "attention": "eager"} if family == "gemma2" else {}
    packed = {"packed": False} if family == "gemma2" else {}
    return dataclasses.replace(case, family=family, tied=True, hidden=case.heads * between(r, 16, 96, 8),
                               tune=case.tune | {"nf4": False} | packed, **own, **few)


LITGPT_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi", "gpt_neox", "llama")


def draw_litgpt(seed: int, number: int) -> Case:
    """Case `number` of a seed with the modules of litgpt: adapters, from 49 on under FSDP2, and every fourth in full
    training."""
    r = random.Random(f"litgpt/{seed}/{number}")
    heads, kv = draw_heads(r, "llama")
    head_dim, lora = r.choice([16, 32, 64, 80, 128]), number % 4 > 0
    family = LITGPT_FAMILIES[number % len(LITGPT_FAMILIES)]
    targets = "".join(t for t in "qkvo" if r.random() < 0.6) or "qv"
    targets = r.choice(["qv", targets, targets + "+mlp"])
    base = dataclasses.replace(draw(seed, 0), attention="sdpa", precision="bf16", window=0)
    if family in ("phi", "gpt_neox"):
        kv = heads
    sharded = lora and number >= 49
    return dataclasses.replace(
        base, family=family, layers=r.choice([2, 3, 4]),
        hidden=between(r, 64, 1536, 8) if family == "qwen3" else heads * head_dim, heads=heads, kv_heads=kv,
        head_dim=head_dim, intermediate=between(r, 64, 4096, 8), vocab=between(r, 500, 60000), tied=False,
        optimizer=OPTIMIZERS[number % 3], checkpoint=sharded, batch=r.choice([1, 1, 2, 3]), sequence=between(r, 48, 1500),
        accumulate=r.choice([1, 2]), lora=r.choice([4, 8, 16]) if lora else 0, lora_targets=targets if lora else "",
        lora_dropout=r.choice([0.0, 0.05]) if lora else 0.0, litgpt={},
        fsdp={"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": True, "sync": "last"}
        if sharded else None)


def draw_litgpt_wide(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters of litgpt in bf16-mixed or, every third, in 32-true; two of five under FSDP2."""
    r = random.Random(f"litgpt/wide/{seed}/{number}")
    case = draw_litgpt(f"{seed}/wide", 5 * number + 1 + (number % 4 == 3))
    sharded = number % 5 >= 3
    return dataclasses.replace(
        case, precision="fp32" if number % 3 == 2 else "autocast", accumulate=r.choice([1, 2, 3]), checkpoint=sharded,
        sequence=min(case.sequence, r.choice([150, 1500])),
        fsdp={"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": True, "sync": "last"}
        if sharded else None)


# Precisions of Lightning Fabric: bf16-mixed, bf16-true, 32-true, as (type of the weights, in which they are gathered).
FABRIC_PRECISIONS = (("fp32", "bf16"), ("bf16", ""), ("fp32", ""))


def draw_litgpt_full(seed: int, number: int) -> Case:
    """Case `number` of a seed in full training of litgpt: on several devices as Fabric shards it, each fifth on one device
    with the other precisions."""
    r = random.Random(f"litgpt/full/{seed}/{number}")
    case = draw_litgpt(f"{seed}/full", 4 * (number // 6) * 7 + 8 * (number % 6))
    precision, gathered = FABRIC_PRECISIONS[(number + number // 3) % len(FABRIC_PRECISIONS)]
    case = dataclasses.replace(case, precision=precision, optimizer=OPTIMIZERS[(number + number // 7) % 3], accumulate=r.choice([1, 2, 3]),
                               sequence=min(case.sequence, r.choice([150, 1500])), lora=0)
    if number % 5 == 4:
        return dataclasses.replace(case, precision=("autocast", "fp32")[number % 2], checkpoint=False)
    return dataclasses.replace(
        case, checkpoint=True,
        fsdp={"world": r.randint(2, 8), "param": gathered, "reduce": gathered, "output": "", "reshard": True, "sync": "last",
              "flat": {"orig": True, "backward": "pre", "forward": False}})


QUANTIZED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")
# (precision in which the model is loaded and its products compute, prepared by peft, autocast)
QUANTIZED_TYPES = (("bf16", True, True), ("bf16", False, True), ("bf16", True, True), ("fp32", True, False), ("bf16", False, False))


def draw_quantized(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights of bitsandbytes. Half of the cases have few tokens, so that
    weights set their peaks, not logits. Every second case from 42 on has AdamW of bitsandbytes in 8 bits."""
    r = random.Random(f"quantized/{seed}/{number}")
    family = QUANTIZED_FAMILIES[number % len(QUANTIZED_FAMILIES)]
    turn = number // len(QUANTIZED_FAMILIES)
    base = draw(f"{seed}/quantized", number // len(QUANTIZED_FAMILIES) * 9 + FAMILIES.index(family))
    precision, prepared, autocast = QUANTIZED_TYPES[(turn + number) % len(QUANTIZED_TYPES)]
    few = (turn + number) % 2 == 1
    optimizer = "adamw-8bit" if number >= 42 and number % 2 else OPTIMIZERS[(turn + number) % 3]
    return dataclasses.replace(
        base, precision=precision, attention="eager" if family == "gemma2" or number % 3 == 0 else "sdpa",
        checkpoint=r.random() < 0.6, optimizer=optimizer, lora=r.choice([4, 8, 16, 32]),
        lora_targets=TARGETS[number // 2 % 2], lora_dropout=r.choice([0.0, 0.05]), batch=1 if few else base.batch,
        sequence=between(r, 4, max(8, base.hidden // 16)) if few else base.sequence,
        vocab=between(r, 500, 4000) if few else base.vocab,
        quantized={"type": r.choice(["nf4", "nf4", "fp4"]), "double": r.random() < 0.6, "prepared": prepared, "autocast": autocast})


def draw_int8(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 8-bit weights of bitsandbytes. A third of the cases has no outliers. Checkpoints
    are reentrant in every second case that has them. From 56 on the adapters are in bf16, as TRL casts them."""
    r = random.Random(f"int8/{seed}/{number}")
    case = draw_quantized(f"{seed}/int8", number)
    turn = number // len(QUANTIZED_FAMILIES)
    types = {"prepared": case.quantized["prepared"], "autocast": case.quantized["autocast"]}
    checkpoint = (turn + number) % 3 != 0
    if number >= 56:
        case = dataclasses.replace(case, precision="bf16")
        types = {"prepared": False, "autocast": True, "adapters": "bf16"}
    return dataclasses.replace(
        case, checkpoint=checkpoint, reentrant=True if checkpoint and r.random() < 0.4 else None, layers=r.choice([2, 3]),
        quantized={"type": "int8", "outliers": r.choice([0, 1, 3, 24]), **types})


def draw_int8_liger(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 8-bit weights and the kernels of Liger."""
    return dataclasses.replace(draw_int8(f"{seed}/liger", number), liger=True)


FACTORY_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")


def draw_factory(seed: int, number: int) -> Case:
    """Case `number` of a seed with the loss of the Trainer of LLaMA-Factory's format v1: full training in f32, adapters over bf16,
    or adapters over 4-bit weights, without autocast."""
    r = random.Random(f"factory/{seed}/{number}")
    family, turn = FACTORY_FAMILIES[number % len(FACTORY_FAMILIES)], number // len(FACTORY_FAMILIES)
    kind = (number + turn) % 3
    if kind == 2:
        case = draw_quantized(f"{seed}/factory", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
        case = dataclasses.replace(case, precision="bf16", quantized=dict(case.quantized, prepared=False, autocast=False))
    else:
        case = draw(f"{seed}/factory", turn * len(FAMILIES) + FAMILIES.index(family))
        adapters = {"lora": r.choice([4, 8, 16]), "lora_targets": "all", "lora_dropout": 0.05} if kind else {"lora": 0, "lora_targets": "", "lora_dropout": 0.0}
        case = dataclasses.replace(case, precision="bf16" if kind else "fp32", **adapters)
    return dataclasses.replace(case, factory=True, checkpoint=r.random() < 0.7, optimizer="adamw-foreach",
                               batch=1 if number % 2 else case.batch, vocab=between(r, 2000, 30000))


def draw_ranks(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters of different ranks; every second one has 4-bit weights. Half of them are the same in
    each layer."""
    r = random.Random(f"ranks/{seed}/{number}")
    case = draw_quantized(f"{seed}/ranks", number // 6 * len(QUANTIZED_FAMILIES) + number % 6)
    if number % 2:
        case = dataclasses.replace(case, quantized=None, precision="bf16")
    layer = "layers.1.self_attn." if number % 4 < 2 else ""
    return dataclasses.replace(case, lora_targets="all", optimizer=OPTIMIZERS[number % 3], sequence=between(r, 8, 100),
                               ranks={layer + "q_proj": r.choice([4, 48]), "down_proj": r.choice([2, 64]), "v_proj": 24})


def draw_reentrant(seed: int, number: int) -> Case:
    """Case `number` of a seed with reentrant checkpoints; every second one has adapters over 4-bit weights. Half of the cases
    have few tokens and a small vocabulary, so that layers set their peaks, not logits."""
    r = random.Random(f"reentrant/{seed}/{number}")
    turn = number // 2
    draw_case = draw_quantized if number % 2 else draw
    case = draw_case(f"{seed}/reentrant", turn)
    few = turn % 2 == turn // 9 % 2
    return dataclasses.replace(
        case, checkpoint=True, reentrant=True, layers=r.choice([2, 3]),
        sequence=between(r, 16, 200) if few else case.sequence, vocab=between(r, 500, 1500) if few else case.vocab)


# Those whose modules of the release compute as those of today.
RELEASE_FAMILIES = {"4.45": ("llama", "qwen2", "granite"), "4.48": ("llama", "mistral", "qwen2", "granite", "phi3"),
                    "4.57": ("llama", "mistral", "qwen2", "granite", "phi3", "qwen3", "smollm3", "olmo2")}


def draw_release(release: str, seed: int, number: int) -> Case:
    """Case `number` of a seed for an older release of transformers, whose checkpoints are reentrant. Half of the cases have few
    words, so that a layer sets the peak, not the logits."""
    r = random.Random(f"release/{release}/{seed}/{number}")
    families = RELEASE_FAMILIES[release]
    family, turn = families[number % len(families)], number // len(families)
    case = draw(f"{seed}/release", number * len(FAMILIES) + FAMILIES.index(family if family in FAMILIES else "llama"))
    wide = {"hidden": case.heads * case.head_dim} if family not in FAMILIES else {}
    few = {"vocab": between(r, 100, 300)} if turn % 2 else {}
    return dataclasses.replace(case, family=family, attention="sdpa", reentrant=True if case.checkpoint else None, window=0,
                               layers=r.choice([2, 3]), release=release, **wide, **few)


def draw_release_flat(release: str, seed: int, number: int) -> Case:
    """Case `number` of a seed for an older release of transformers under FSDP1 as accelerate prepares it; two of three have
    adapters. Most checkpoints are reentrant. Every second case has few words and more layers than others, so that the backward
    pass of the first layer sets the peak where layers keep something until then."""
    r = random.Random(f"release/flat/{release}/{seed}/{number}")
    families = RELEASE_FAMILIES[release]
    family, turn = families[number % len(families)], number // len(families)
    draw_case = draw_flat if number % 3 == 0 else draw_flat_lora
    index = FSDP_FAMILIES.index(family if family in FSDP_FAMILIES else "llama")
    case = draw_case(seed + 10, turn * len(FSDP_FAMILIES) + index)
    wide = {"hidden": case.heads * case.head_dim} if family not in FSDP_FAMILIES else {}
    few = {"vocab": between(r, 100, 300), "layers": r.choice([3, 4, 5]), "batch": r.choice([2, 3]),
           "sequence": between(r, 200, 500)} if number % 2 else {}
    checkpoint = r.random() < 0.8
    return dataclasses.replace(case, family=family, attention="sdpa", checkpoint=checkpoint, window=0, release=release,
                               reentrant=True if checkpoint and r.random() < 0.8 else None, **wide, **few)


def draw_release_mixtral(release: str, seed: int, number: int) -> Case:
    """Case `number` of a seed of Mixtral in an older release, whose experts are modules. Two of three are under FSDP1."""
    r = random.Random(f"release/mixtral/{release}/{seed}/{number}")
    place = FSDP_FAMILIES.index("mixtral")
    if number % 3 == 0:
        case = draw(f"{seed}/release/mixtral", number * len(FAMILIES) + FAMILIES.index("mixtral"))
    else:
        case = (draw_flat if number % 6 == 1 else draw_flat_lora)(seed + 11, number * len(FSDP_FAMILIES) + place)
    few = {"vocab": between(r, 100, 300), "layers": 3} if number % 2 else {}
    return dataclasses.replace(case, attention="sdpa", window=0, release=release, experts=r.choice([4, 6, 8]), experts_per_token=2,
                               reentrant=True if case.checkpoint and r.random() < 0.8 else None, **few)


def draw_release_experts(release: str, seed: int, number: int) -> Case:
    """Case `number` of a seed of Mixtral and Qwen3-MoE in turn, with experts that are modules, as draw_release_mixtral() draws it."""
    case = draw_release_mixtral(release, seed + 1, number // 2)
    if number % 2 == 0:
        return case
    model = model_of_family(f"{seed}/release/experts", "qwen3_moe", number)
    fields = {name: getattr(model, name) for name in MODEL_FIELDS if name not in ("experts", "experts_per_token", "vocab", "layers")}
    return dataclasses.replace(case, **fields)


LIGER_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3")


def draw_liger(seed: int, number: int, families: tuple = LIGER_FAMILIES) -> Case:
    """Case `number` of a seed with the kernels of Liger; every third one has adapters over 4-bit weights. Half of the cases have
    few tokens, so that gradients of the head or layers set their peaks, not chunks of logits."""
    r = random.Random(f"liger/{seed}/{number}")
    family, turn = families[number % len(families)], number // len(families)
    if number % 3 == 2:
        case = draw_quantized(f"{seed}/liger", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
    else:
        case = draw(f"{seed}/liger", turn * len(FAMILIES) + FAMILIES.index(family))
    few = (turn + number) % 2
    checkpoint = r.random() < 0.5
    return dataclasses.replace(
        case, liger=True, checkpoint=checkpoint, reentrant=True if checkpoint and r.random() < 0.3 else None,
        sequence=between(r, 16, 200) if few else case.sequence)


def draw_liger_gemma(seed: int, number: int) -> Case:
    """The same for Gemma 2 and 3."""
    return draw_liger(seed, number, ("gemma2", "gemma3"))


def draw_smollm3(seed: int, number: int) -> Case:
    """Case `number` of a seed of SmolLM3, in which every second layer has no rotary positions; every third case has adapters over
    4-bit weights. Half of the cases have wide heads, and little else, so that attention sets the peak of the forward pass."""
    r = random.Random(f"smollm3/{seed}/{number}")
    if number % 3 == 2:
        case = draw_quantized(f"{seed}/smollm3", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    else:
        case = draw(f"{seed}/smollm3", number * len(FAMILIES) + FAMILIES.index("llama"))
    wide = {"hidden": between(r, 64, 128, 8), "intermediate": between(r, 64, 128, 8), "vocab": between(r, 100, 200), "heads": 12,
            "kv_heads": r.choice([3, 12]), "head_dim": 128, "lora_targets": "qv" if case.lora else ""}
    return dataclasses.replace(case, family="smollm3", layers=2, **(wide if number % 2 else {}))


KINDRED = ("granite", "olmo2", "olmo3")


def draw_kindred(seed: int, number: int) -> Case:
    """Case `number` of a seed of Granite, OLMo 2 or OLMo 3. Every fourth case has adapters over 4-bit weights. Half of the cases
    have few words, so that a layer sets the peak; half of those of OLMo 3 have windows in every second layer."""
    r = random.Random(f"kindred/{seed}/{number}")
    family, turn = KINDRED[number % len(KINDRED)], number // len(KINDRED)
    if turn % 4 == 3:
        case = draw_quantized(f"{seed}/kindred", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    else:
        case = draw(f"{seed}/kindred", number * len(FAMILIES) + FAMILIES.index("llama"))
    few = {"vocab": between(r, 100, 300)} if turn % 2 else {}
    return dataclasses.replace(case, family=family, layers=r.choice([2, 3]), hidden=case.heads * case.head_dim,
                               window=between(r, 16, 600) if family == "olmo3" and r.random() < 0.5 else 0, **few)


def draw_glm_seed(seed: int, number: int) -> Case:
    """Case `number` of a seed of GLM-4 or Seed-OSS, which has dropout in half of its cases. Every fourth case has adapters over
    4-bit weights. Half of the cases have few words, so that a layer sets the peak."""
    r = random.Random(f"glm-seed/{seed}/{number}")
    family, turn = ("glm4", "seed_oss")[number % 2], number // 2
    if turn % 4 == 3:
        case = draw_quantized(f"{seed}/glm-seed", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    else:
        case = draw(f"{seed}/glm-seed", number * len(FAMILIES) + FAMILIES.index("llama"))
    few = {"vocab": between(r, 100, 300)} if turn % 2 else {}
    return dataclasses.replace(case, family=family, layers=r.choice([2, 3]), window=0,
                               dropout=r.choice([0.0, 0.1]) if family == "seed_oss" else 0.0, **few)


def draw_gemma(seed: int, number: int) -> Case:
    """Case `number` of a seed of the first Gemma. Every fourth case has adapters over 4-bit weights. Half of the cases have few
    words, so that a layer sets the peak."""
    r = random.Random(f"gemma/{seed}/{number}")
    if number % 4 == 3:
        case = draw_quantized(f"{seed}/gemma", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    else:
        case = draw(f"{seed}/gemma", number * len(FAMILIES) + FAMILIES.index("llama"))
    few = {"vocab": between(r, 100, 300)} if number % 2 else {}
    return dataclasses.replace(case, family="gemma", layers=r.choice([2, 3]), window=0, tied=True, **few)


def draw_quantized_moe(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters of attention over 4-bit weights of Mixtral or Qwen3-MoE, whose experts and routers are
    no linear layers: they are in f32 where peft prepares the model. From 14 on as axolotl prepares it: embedding, norms and
    head are cast back to bf16."""
    r = random.Random(f"quantized/moe/{seed}/{number}")
    dense = draw_quantized(f"{seed}/moe", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    case = draw(f"{seed}/moe", number * len(FAMILIES) + FAMILIES.index("mixtral"))
    sizes = {name: getattr(case, name) for name in ("hidden", "intermediate", "heads", "kv_heads", "head_dim", "experts", "experts_per_token")}
    axolotl = {"precision": "bf16", "quantized": dict(dense.quantized, prepared="axolotl", autocast=True)} if number >= 14 else {}
    return dataclasses.replace(dense, family=("mixtral", "qwen3_moe")[number % 2], window=0, vocab=between(r, 100, 4000), **sizes, **axolotl)


def draw_qwen3_moe(seed: int, number: int) -> Case:
    """Case `number` of a seed of Qwen3-MoE: one device, with adapters in half of the cases; every third under FSDP2. Half of the
    cases have few words, so that a layer sets the peak."""
    r = random.Random(f"qwen3-moe/{seed}/{number}")
    if number % 3 == 2:
        of = FSDP_FAMILIES
        draw_case = (draw_accelerate, draw_fsdp, draw_accelerate_lora)[number // 3 % 3]
        case = draw_case(seed + 11, number // 3 * len(of) + of.index("mixtral"))
    else:
        case = draw(f"{seed}/qwen3-moe", number * len(FAMILIES) + FAMILIES.index("mixtral"))
    few = {"vocab": between(r, 100, 300)} if number % 2 else {}
    return dataclasses.replace(case, family="qwen3_moe", window=0, **few)


def draw_experts_lora(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters of experts, which peft adds to their stacked weights: Mixtral and Qwen3-MoE in turn,
    half of them with adapters of attention too; half of the cases have few words. From 24 on the other matrices are in 4 bits."""
    r = random.Random(f"experts-lora/{seed}/{number}")
    case = draw(f"{seed}/experts-lora", number * len(FAMILIES) + FAMILIES.index("mixtral")) if number < 24 \
        else draw_quantized_moe(f"{seed}/experts-lora", number)
    few = {"vocab": between(r, 100, 300)} if number // 2 % 2 else {}
    return dataclasses.replace(case, family=("mixtral", "qwen3_moe")[number % 2], window=0, lora=r.choice([4, 8, 16]), lora_dropout=0.0,
                               lora_targets=("experts", "experts+attention")[number // 4 % 2], **few)


def draw_gpt_oss(seed: int, number: int) -> Case:
    """Case `number` of a seed of gpt-oss, which has no SDPA; half of them have windows in every second layer, and few words."""
    r = random.Random(f"gpt-oss/{seed}/{number}")
    case = draw(f"{seed}/gpt-oss", number * len(FAMILIES) + FAMILIES.index("mixtral"))
    few = {"vocab": between(r, 100, 300)} if number % 2 else {}
    return dataclasses.replace(case, family="gpt_oss", attention="eager", sequence=min(case.sequence, 700),
                               window=between(r, 16, 600) if r.random() < 0.5 else 0, **few)


def draw_trl(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights as SFTTrainer of TRL 1.16 prepares them: cast to bf16. Embedding,
    norms and head are in f32 or bf16."""
    case = draw_quantized(f"{seed}/trl", number)
    return dataclasses.replace(
        case, precision="bf16", quantized=dict(case.quantized, prepared=number % 2 == 0, autocast=True, adapters="bf16"))


def draw_trl_norms(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights as SFTTrainer of TRL before 1.0 prepares them: norms in f32,
    embedding and head in bf16."""
    case = draw_quantized(f"{seed}/trl/norms", number)
    return dataclasses.replace(case, precision="bf16", quantized=dict(case.quantized, prepared="trl", autocast=True))


CUT_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "mixtral")


def draw_cut(seed: int, number: int) -> Case:
    """Case `number` of a seed with Cut Cross Entropy, whose weights and hidden states have 16 bits; every third one has adapters
    over 4-bit weights. Half of the cases have few tokens."""
    r = random.Random(f"cut/{seed}/{number}")
    family, turn = CUT_FAMILIES[number % len(CUT_FAMILIES)], number // len(CUT_FAMILIES)
    case = draw(f"{seed}/cut", turn * len(FAMILIES) + FAMILIES.index(family))
    if turn % 3 == 2 and family != "mixtral":
        case = draw_quantized(f"{seed}/cut", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
        case = dataclasses.replace(case, quantized=dict(case.quantized, prepared=False, autocast=True))
    checkpoint = r.random() < 0.5
    return dataclasses.replace(
        case, cut=True, precision="bf16", checkpoint=checkpoint, sequence=between(r, 16, 200) if turn % 2 else case.sequence)


def draw_cut_kindred(seed: int, number: int) -> Case:
    """The same for families whose modules are like those of Llama or Mixtral but for a few operators."""
    families = ("granite", "olmo2", "olmo3", "qwen3_moe", "smollm3", "glm4", "seed_oss")
    family, turn = families[number % len(families)], number // len(families)
    r = random.Random(f"cut/kindred/{seed}/{number}")
    if family == "qwen3_moe":
        case = draw_qwen3_moe(f"{seed}/cut", turn * 3)
    elif family in ("glm4", "seed_oss"):
        case = draw_glm_seed(f"{seed}/cut", turn * 2 + (family == "seed_oss"))
    elif family == "smollm3":
        case = draw_smollm3(f"{seed}/cut", turn)
    else:
        case = draw_kindred(f"{seed}/cut", turn * len(KINDRED) + KINDRED.index(family))
    quantized = dict(case.quantized, prepared=False, autocast=True) if case.quantized else None
    return dataclasses.replace(case, cut=True, precision="bf16", quantized=quantized, checkpoint=r.random() < 0.5,
                               sequence=between(r, 16, 200) if turn % 2 else case.sequence)


def draw_eight_bit(seed: int, number: int) -> Case:
    """Case `number` of a seed in full training with AdamW of bitsandbytes in 8 bits, with few tokens, so that weights and moments
    set the peaks."""
    r = random.Random(f"eight/{seed}/{number}")
    case = draw(f"{seed}/eight", number)
    return dataclasses.replace(case, optimizer="adamw-8bit", lora=0, lora_targets="", lora_dropout=0.0, batch=1,
                               sequence=between(r, 8, 64))


DPO_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3")


def draw_dpo(seed: int, number: int) -> Case:
    """Case `number` of a seed trained by preferences: in turn as a whole, with adapters, and with adapters over 4-bit weights. Every
    sixth has no reference in its step."""
    r = random.Random(f"dpo/{seed}/{number}")
    family, turn = DPO_FAMILIES[number % len(DPO_FAMILIES)], number // len(DPO_FAMILIES)
    way = (turn + number) % 3
    if way == 2:
        case = draw_quantized(f"{seed}/dpo", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
    else:
        case = draw(f"{seed}/dpo", turn * len(FAMILIES) + FAMILIES.index(family))
        case = dataclasses.replace(case, lora=r.choice([4, 8, 16]) if way else 0, lora_targets="all" if way else "")
    checkpoint = r.random() < 0.6
    return dataclasses.replace(
        case, lora_dropout=0.0, batch=r.choice([1, 1, 2]), vocab=between(r, 4000, 30000), sequence=between(r, 48, 600), checkpoint=checkpoint,
        reentrant=True if checkpoint and r.random() < 0.5 else None,
        dpo={"trainer": ("trl", "factory")[turn % 2], "reference": number % 6 != 5})


AXOLOTL_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3")


def draw_axolotl(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters that kernels of axolotl compute, over weights in 4 bits or in bf16, under autocast.
    Half of the cases have few tokens."""
    r = random.Random(f"axolotl/{seed}/{number}")
    family, turn = AXOLOTL_FAMILIES[number % len(AXOLOTL_FAMILIES)], number // len(AXOLOTL_FAMILIES)
    case = draw_quantized(f"{seed}/axolotl", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
    quantized = dict(case.quantized, type="nf4", prepared=False, autocast=True) if (turn + number) % 2 else None
    checkpoint = r.random() < 0.5
    kernels = ["mlp", "qkv", "o"] if r.random() < 0.6 else r.choice([["mlp"], ["qkv"], ["o"], ["mlp", "o"], []])
    return dataclasses.replace(
        case, axolotl=kernels, quantized=quantized, precision="bf16", checkpoint=checkpoint, window=0,
        optimizer=OPTIMIZERS[number % 3], lora_targets="all" if r.random() < 0.7 else "qv",
        reentrant=True if checkpoint and r.random() < 0.6 else None)


def draw_sharded_quantized(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights that accelerate shards: by FSDP1 in every second case, else by
    FSDP2. Every fourth case has no mixed precision."""
    r = random.Random(f"sharded/quantized/{seed}/{number}")
    families = len(FSDP_FAMILIES) - 1  # without Mixtral, whose experts are not quantized
    turn, flat = number // families, (number + number // families) % 2 == 0
    case = (draw_flat_lora if flat else draw_accelerate_lora)(seed + 6, turn * len(FSDP_FAMILIES) + number % families)
    policy = "" if turn % 4 == 3 else "bf16"
    return dataclasses.replace(
        case, precision="bf16", fsdp=case.fsdp | {"param": policy, "reduce": policy, "output": "" if flat else policy},
        quantized={"type": "nf4", "double": r.random() < 0.6, "prepared": False, "autocast": False})


def draw_sharded_liger(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters and the kernels of Liger under FSDP1; every third one has 4-bit weights."""
    families = len(FSDP_FAMILIES) - 1
    turn = number // families
    case = draw_flat_lora(seed + 7, turn * len(FSDP_FAMILIES) + number % families)
    if number % 3 == 2:
        case = dataclasses.replace(
            case, precision="bf16", fsdp=case.fsdp | {"param": "bf16", "reduce": "bf16"},
            quantized={"type": "nf4", "double": turn % 2 == 0, "prepared": False, "autocast": False})
    return dataclasses.replace(case, liger=True)


def draw_fsdp_liger(seed: int, number: int) -> Case:
    """Case `number` of a seed in full training with the kernels of Liger under FSDP2 as accelerate prepares it, or under FSDP1 in
    every second case up to 30. From 45 on Mixtral, under FSDP1 in every second case."""
    families = len(FSDP_FAMILIES) - 1
    if number >= 45:
        draw_case = draw_flat if number % 2 else draw_accelerate
        return dataclasses.replace(draw_case(seed + 9, (number - 44) * len(FSDP_FAMILIES) - 1), liger=True)
    turn, flat = number // families, number < 30 and (number + number // families) % 2 == 0
    case = (draw_flat if flat else draw_accelerate)(seed + 9, turn * len(FSDP_FAMILIES) + number % families)
    return dataclasses.replace(case, liger=True)


def draw_zero_liger(seed: int, number: int) -> Case:
    """Case `number` of a seed with the kernels of Liger under DeepSpeed: stage 3 in every second case; with adapters from 28 on."""
    families = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3")
    family, turn, third = families[number % len(families)], number // len(families), number % 2 == 0
    draw_case = (draw_zero3_lora if third else draw_zero_lora) if number >= 28 else draw_zero3 if third else draw_zero
    for n in range(1000):
        case = draw_case(f"{seed}/liger", turn * 40 + n)
        if case.family == family:
            return dataclasses.replace(case, liger=True)


def draw_zero_quantized(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights under stage 1 or 2 of DeepSpeed, which casts the adapters; every
    third one offloads the optimizer. From 21 on with the kernels of Liger."""
    families = QUANTIZED_FAMILIES
    family, turn = families[number % len(families)], number // len(families)
    r = random.Random(f"zero/quantized/{seed}/{number}")
    for n in range(1000):
        case = draw_zero_lora(f"{seed}/quantized", turn * 40 + n)
        if case.family == family:
            break
    zero, optimizer = case.zero, case.optimizer
    if number % 3 == 2:
        zero = zero | {"overlap": False, "offload": {"optimizer": True, "param": False, "pin": True}}
        optimizer = "adamw-cpu"
    return dataclasses.replace(
        case, precision="bf16", optimizer=optimizer, zero=zero, liger=True if number >= 21 else None, vocab=between(r, 500, 4000), sequence=between(r, 8, 200),
        quantized={"type": "nf4", "double": r.random() < 0.5, "prepared": False, "autocast": False})


def draw_liger_mixtral(seed: int, number: int) -> Case:
    """Case `number` of a seed of Mixtral with the kernels of Liger."""
    return dataclasses.replace(draw(f"{seed}/liger", number * len(FAMILIES) + FAMILIES.index("mixtral")), liger=True)


def draw_whole_quantized(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights packed as bytes, which FSDP2 of accelerate does not shard."""
    families = len(FSDP_FAMILIES) - 1
    turn = number // families
    case = draw_accelerate_lora(seed + 8, turn * len(FSDP_FAMILIES) + number % families)
    policy = "" if turn % 4 == 3 else "bf16"
    return dataclasses.replace(
        case, precision="bf16", fsdp=case.fsdp | {"param": policy, "reduce": policy, "output": policy},
        quantized={"type": "nf4", "double": turn % 2 == 0, "prepared": False, "autocast": False, "whole": True})


# What a model is, in contrast to how it is trained.
MODEL_FIELDS = ("family", "layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "tied", "window", "experts",
                "experts_per_token", "softcap", "final_softcap", "dropout")
SHARDED_WAYS = (draw_flat, draw_flat_lora, draw_accelerate, draw_accelerate_lora, draw_fsdp, draw_zero, draw_zero_lora, draw_zero3,
                draw_zero3_lora)
SHARDED_KINDRED = ("granite", "olmo2", "olmo3", "smollm3", "glm4", "seed_oss")


def model_of_family(seed: str, family: str, number: int) -> Case:
    """A case of a family; only the fields of its model count."""
    if family in KINDRED:
        return draw_kindred(seed, number * len(KINDRED) + KINDRED.index(family))
    if family in ("glm4", "seed_oss"):
        return draw_glm_seed(seed, number * 2 + (family == "seed_oss"))
    if family in FAMILIES:
        return draw(seed, number * len(FAMILIES) + FAMILIES.index(family))
    return {"smollm3": draw_smollm3, "gemma": draw_gemma, "gpt_oss": draw_gpt_oss,
            "qwen3_moe": lambda seed, n: draw_qwen3_moe(seed, 3 * n)}[family](seed, number)


def draw_sharded(seed: int, number: int, families: tuple, ways: tuple, small: bool = True) -> Case:
    """Case `number` of a seed of one of the families, whose weights, gradients or moments are sharded in each of the ways in turn.
    small: two layers and at most two micro-batches, which takes half of the time."""
    family, turn = families[number % len(families)], number // len(families)
    model = model_of_family(f"{seed}/sharded", family, turn)
    case = ways[turn % len(ways)](seed + 20, number)
    if family in ("gemma2", "gpt_oss"):
        case = dataclasses.replace(case, attention="eager", sequence=min(case.sequence, 700))
    case = dataclasses.replace(case, **{name: getattr(model, name) for name in MODEL_FIELDS})
    return dataclasses.replace(case, layers=2, accumulate=min(case.accumulate, 2)) if small else case


def draw_sharded_kindred(seed: int, number: int) -> Case:
    """Case `number` of a seed of families like Llama under FSDP1 and FSDP2 as accelerate prepares them, and under DeepSpeed, in full
    training and with adapters. From 48 on the cases are small."""
    turn, family = divmod(number, len(SHARDED_KINDRED))
    # Of nine ways the fifth, FSDP2 that accelerate does not prepare, is left out.
    place = turn + (turn + 4) // 8
    return draw_sharded(seed, place * len(SHARDED_KINDRED) + family, SHARDED_KINDRED, SHARDED_WAYS, small=number >= 48)


def draw_sharded_quantized_kindred(seed: int, number: int) -> Case:
    """Case `number` of a seed of families like Llama with adapters over 4-bit weights that accelerate shards, by FSDP1 or FSDP2.
    Every third case has few words, so that a layer sets the peak."""
    case = draw_sharded(seed + 2, number, SHARDED_KINDRED, (draw_sharded_quantized,))
    few = {"vocab": 200 + 8 * number, "batch": 2, "sequence": 300 + number} if number // len(SHARDED_KINDRED) % 3 == 1 else {}
    return dataclasses.replace(case, **few)


def draw_sharded_qwen3_moe(seed: int, number: int) -> Case:
    """Case `number` of a seed of Qwen3-MoE under FSDP1 and FSDP2 as accelerate prepares it, in full training and with adapters."""
    return draw_sharded(seed + 3, number, ("qwen3_moe",), SHARDED_WAYS[:4])


def draw_sharded_gemma(seed: int, number: int) -> Case:
    """Case `number` of a seed of Gemma 1 to 3 under FSDP1 and FSDP2 as accelerate prepares them, in full training and with
    adapters."""
    return draw_sharded(seed + 1, number, ("gemma", "gemma2", "gemma3"), SHARDED_WAYS[:4])


def draw_sharded_gpt(seed: int, number: int) -> Case:
    """Case `number` of a seed of GPT-2 and gpt-oss, sharded in each of the ways in turn. Half of the cases have few words, so that
    a layer sets the peak."""
    case = draw_sharded(seed + 4, number, ("gpt2", "gpt_oss"), SHARDED_WAYS)
    few = {"vocab": 200 + 8 * number, "sequence": min(case.sequence, 200 + 10 * number)} if number // 2 % 2 else {}
    return dataclasses.replace(case, **few)


def draw_zero_experts(seed: int, number: int) -> Case:
    """Case `number` of a seed of Mixtral and Qwen3-MoE under stages 1 to 3 of DeepSpeed, in full training and with adapters; stage
    3 twice as often. Half of the cases have few words, so that experts set the peak. From 24 on with offload, mostly of stage 3."""
    offload = lambda seed, n: draw_offload(seed, n - 22)
    ways = (offload,) if number >= 24 else (draw_zero3, draw_zero3_lora, draw_zero, draw_zero3, draw_zero3_lora, draw_zero_lora)
    case = draw_sharded(seed + 5, number, ("mixtral", "qwen3_moe"), ways)
    few = {"vocab": 200 + 8 * number, "sequence": min(case.sequence, 100 + 10 * number)} if number // 2 % 2 else {}
    return dataclasses.replace(case, **few)


def draw_release_fsdp2(release: str, seed: int, number: int) -> Case:
    """Case `number` of a seed for an older release of transformers under FSDP2 as accelerate prepares it; two of three have
    adapters. Every second case has few words, so that a layer sets the peak. No checkpoint is reentrant: FSDP2 needs those that
    are not."""
    r = random.Random(f"release/fsdp2/{release}/{seed}/{number}")
    families = RELEASE_FAMILIES[release]
    family, turn = families[number % len(families)], number // len(families)
    index = FSDP_FAMILIES.index(family if family in FSDP_FAMILIES else "llama")
    case = (draw_accelerate if number % 3 == 0 else draw_accelerate_lora)(seed + 12, turn * len(FSDP_FAMILIES) + index)
    wide = {"hidden": case.heads * case.head_dim} if family not in FSDP_FAMILIES else {}
    few = {"vocab": between(r, 100, 300), "layers": r.choice([2, 3]), "batch": r.choice([2, 3]),
           "sequence": between(r, 200, 500)} if number % 2 else {}
    return dataclasses.replace(case, family=family, attention="sdpa", checkpoint=r.random() < 0.7, window=0, release=release,
                               **wide, **few)


def draw_sharded_dpo(seed: int, number: int) -> Case:
    """Case `number` of a seed trained by preferences with sharded weights: under FSDP1 and FSDP2 as accelerate prepares them and
    under stages 1 to 3 of DeepSpeed, in full training and with adapters. Every sixth has no reference in its step."""
    r = random.Random(f"sharded/dpo/{seed}/{number}")
    ways = tuple(way for way in SHARDED_WAYS if way is not draw_fsdp)
    case = draw_sharded(seed + 6, number, DPO_FAMILIES, ways)
    return dataclasses.replace(
        case, lora_dropout=0.0, lora_targets="all" if case.lora else "", batch=r.choice([1, 1, 2]), vocab=between(r, 4000, 30000),
        sequence=between(r, 48, 600), dpo={"trainer": ("trl", "factory")[(number + number // 6) % 2], "reference": number % 6 != 5})


FUSED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "gpt2", "granite", "smollm3")


def draw_fused(seed: int, number: int) -> Case:
    """Case `number` of a seed with the fused head of TRL; every third one, but for three families, has adapters over 4-bit weights.
    Every second case has few tokens."""
    r = random.Random(f"fused/{seed}/{number}")
    family, turn = FUSED_FAMILIES[number % len(FUSED_FAMILIES)], number // len(FUSED_FAMILIES)
    if turn % 3 == 2 and family in QUANTIZED_FAMILIES:
        case = draw_trl(f"{seed}/fused", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
    else:
        case = draw(f"{seed}/fused", number * 5 + turn)
        model = model_of_family(f"{seed}/fused", family, turn)
        case = dataclasses.replace(case, **{name: getattr(model, name) for name in MODEL_FIELDS})
    few = {"sequence": between(r, 16, 200)} if (number + turn) % 2 else {}
    return dataclasses.replace(case, fused=True, attention="eager" if family == "gemma2" else "sdpa", layers=2,
                               vocab=between(r, 4000, 70000), **few)


def draw_fused_dpo(seed: int, number: int) -> Case:
    """Case `number` of a seed trained by DPOTrainer with the fused head of TRL."""
    case = draw_dpo(seed + 30, number)
    return dataclasses.replace(case, fused=True, dpo=case.dpo | {"trainer": "trl"})


def draw_sharded_fused(seed: int, number: int) -> Case:
    """Case `number` of a seed with the fused head of TRL and sharded weights, in each way in turn. Every third one is trained by
    DPOTrainer."""
    r = random.Random(f"sharded/fused/{seed}/{number}")
    turn, family = divmod(number, len(DPO_FAMILIES))
    if (turn + family) % 3 == 2:
        case = draw_sharded_dpo(seed + 31, number)
        return dataclasses.replace(case, fused=True, dpo=case.dpo | {"trainer": "trl"})
    ways = tuple(way for way in SHARDED_WAYS if way is not draw_fsdp)
    case = draw_sharded(seed + 32, number, DPO_FAMILIES, ways)
    return dataclasses.replace(case, fused=True, vocab=between(r, 4000, 50000), sequence=between(r, 48, 800))


def draw_zero_gemma(seed: int, number: int) -> Case:
    """Case `number` of a seed of the first Gemma under stages 1 to 3 of DeepSpeed, in full training and with adapters."""
    return draw_sharded(seed + 7, number, ("gemma",), (draw_zero, draw_zero_lora, draw_zero3, draw_zero3_lora))
