"""Random cases under FSDP 1 and 2: as PyTorch runs them, and as accelerate prepares them."""
import dataclasses
import random

from cases import Case, FAMILIES, OPTIMIZERS, TARGETS, between, draw, kind

# Families, and policies as (weights, type of the gathered weights, of the reduction, of the outputs).
FSDP_FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "phi3", "mixtral")

FSDP_POLICIES = (("fp32", "bf16", "f32", ""), ("fp32", "bf16", "bf16", "bf16"), ("fp32", "", "", ""), ("bf16", "", "", ""),
                 ("fp32", "bf16", "", ""))


@kind("fsdp")
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


@kind("accelerate")
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


@kind("accelerate-lora")
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


@kind("flat")
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


@kind("flat-lora")
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


@kind("sharded-quantized")
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


@kind("whole-quantized")
def draw_whole_quantized(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights packed as bytes, which FSDP2 of accelerate does not shard."""
    families = len(FSDP_FAMILIES) - 1
    turn = number // families
    case = draw_accelerate_lora(seed + 8, turn * len(FSDP_FAMILIES) + number % families)
    policy = "" if turn % 4 == 3 else "bf16"
    return dataclasses.replace(
        case, precision="bf16", fsdp=case.fsdp | {"param": policy, "reduce": policy, "output": policy},
        quantized={"type": "nf4", "double": turn % 2 == 0, "prepared": False, "autocast": False, "whole": True})
