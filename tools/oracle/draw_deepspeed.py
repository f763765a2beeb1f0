"""Random cases under the stages of ZeRO of DeepSpeed."""
import dataclasses
import random

from cases import Case, FAMILIES, OPTIMIZERS, TARGETS, between, draw, kind
from draw_adapters import QUANTIZED_FAMILIES

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


@kind("zero")
def draw_zero(seed: int, number: int) -> Case:
    """Case `number` of a seed under DeepSpeed's stages 1 and 2. The bucket has a size that some gradients exceed, that a
    few fill, or that holds all of them."""
    r = random.Random(f"zero/{seed}/{number}")
    case, world = under_deepspeed(r, seed, number, ZERO_FAMILIES, 2000 * 9, 7)
    return dataclasses.replace(
        case, zero={"stage": r.choice([1, 2]), "world": world, "rank": r.randrange(world),
                    "bucket": between(r, 50_000, 8_000_000), "overlap": r.random() < 0.5, "groups": r.choice([1, 2])})


@kind("zero3")
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


@kind("zero-lora")
def draw_zero_lora(seed: int, number: int) -> Case:
    """Case `number` of a seed under stage 1 or 2 of DeepSpeed with adapters. The bucket has a size that some gradients exceed,
    that a few fill, or that holds all of them."""
    r = random.Random(f"zero/lora/{seed}/{number}")
    case = draw_zero(f"{seed}/lora", number)
    return dataclasses.replace(
        case, lora=r.choice([4, 8, 12, 16, 32]), lora_targets=TARGETS[number % 2], lora_dropout=r.choice([0.0, 0.05]),
        zero=case.zero | {"bucket": between(r, 3_000, 1_000_000)})


@kind("zero3-lora")
def draw_zero3_lora(seed: int, number: int) -> Case:
    """Case `number` of a seed under stage 3 of DeepSpeed with adapters."""
    r = random.Random(f"zero3/lora/{seed}/{number}")
    case = draw_zero3(f"{seed}/lora", number)
    return dataclasses.replace(
        case, lora=r.choice([4, 8, 12, 16, 32]), lora_targets=TARGETS[number % 2], lora_dropout=r.choice([0.0, 0.05]),
        zero=case.zero | {"bucket": between(r, 3_000, 1_000_000), "sub_group": between(r, 1_000, 500_000)})


@kind("offload")
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


@kind("zero-quantized")
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
