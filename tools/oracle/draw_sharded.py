"""Random cases of any family, sharded in each way in turn."""
import dataclasses
import random

from cases import Case, MODEL_FIELDS, between, kind
from draw_adapters import DPO_FAMILIES
from draw_deepspeed import draw_offload, draw_zero, draw_zero3, draw_zero3_lora, draw_zero_lora
from draw_families import SHARDED_KINDRED, model_of_family
from draw_fsdp import (draw_accelerate, draw_accelerate_lora, draw_flat, draw_flat_lora, draw_fsdp,
    draw_sharded_quantized)

SHARDED_WAYS = (draw_flat, draw_flat_lora, draw_accelerate, draw_accelerate_lora, draw_fsdp, draw_zero, draw_zero_lora, draw_zero3,
                draw_zero3_lora)


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


@kind("sharded-kindred")
def draw_sharded_kindred(seed: int, number: int) -> Case:
    """Case `number` of a seed of families like Llama under FSDP1 and FSDP2 as accelerate prepares them, and under DeepSpeed, in full
    training and with adapters. From 48 on the cases are small."""
    turn, family = divmod(number, len(SHARDED_KINDRED))
    # Of nine ways the fifth, FSDP2 that accelerate does not prepare, is left out.
    place = turn + (turn + 4) // 8
    return draw_sharded(seed, place * len(SHARDED_KINDRED) + family, SHARDED_KINDRED, SHARDED_WAYS, small=number >= 48)


@kind("sharded-quantized-kindred")
def draw_sharded_quantized_kindred(seed: int, number: int) -> Case:
    """Case `number` of a seed of families like Llama with adapters over 4-bit weights that accelerate shards, by FSDP1 or FSDP2.
    Every third case has few words, so that a layer sets the peak."""
    case = draw_sharded(seed + 2, number, SHARDED_KINDRED, (draw_sharded_quantized,))
    few = {"vocab": 200 + 8 * number, "batch": 2, "sequence": 300 + number} if number // len(SHARDED_KINDRED) % 3 == 1 else {}
    return dataclasses.replace(case, **few)


@kind("sharded-qwen3-moe")
def draw_sharded_qwen3_moe(seed: int, number: int) -> Case:
    """Case `number` of a seed of Qwen3-MoE under FSDP1 and FSDP2 as accelerate prepares it, in full training and with adapters."""
    return draw_sharded(seed + 3, number, ("qwen3_moe",), SHARDED_WAYS[:4])


@kind("sharded-gemma")
def draw_sharded_gemma(seed: int, number: int) -> Case:
    """Case `number` of a seed of Gemma 1 to 3 under FSDP1 and FSDP2 as accelerate prepares them, in full training and with
    adapters."""
    return draw_sharded(seed + 1, number, ("gemma", "gemma2", "gemma3"), SHARDED_WAYS[:4])


@kind("sharded-gpt")
def draw_sharded_gpt(seed: int, number: int) -> Case:
    """Case `number` of a seed of GPT-2 and gpt-oss, sharded in each of the ways in turn. Half of the cases have few words, so that
    a layer sets the peak."""
    case = draw_sharded(seed + 4, number, ("gpt2", "gpt_oss"), SHARDED_WAYS)
    few = {"vocab": 200 + 8 * number, "sequence": min(case.sequence, 200 + 10 * number)} if number // 2 % 2 else {}
    return dataclasses.replace(case, **few)


@kind("zero-experts")
def draw_zero_experts(seed: int, number: int) -> Case:
    """Case `number` of a seed of Mixtral and Qwen3-MoE under stages 1 to 3 of DeepSpeed, in full training and with adapters; stage
    3 twice as often. Half of the cases have few words, so that experts set the peak. From 24 on with offload, mostly of stage 3."""
    offload = lambda seed, n: draw_offload(seed, n - 22)
    ways = (offload,) if number >= 24 else (draw_zero3, draw_zero3_lora, draw_zero, draw_zero3, draw_zero3_lora, draw_zero_lora)
    case = draw_sharded(seed + 5, number, ("mixtral", "qwen3_moe"), ways)
    few = {"vocab": 200 + 8 * number, "sequence": min(case.sequence, 100 + 10 * number)} if number // 2 % 2 else {}
    return dataclasses.replace(case, **few)


@kind("sharded-dpo")
def draw_sharded_dpo(seed: int, number: int) -> Case:
    """Case `number` of a seed trained by preferences with sharded weights: under FSDP1 and FSDP2 as accelerate prepares them and
    under stages 1 to 3 of DeepSpeed, in full training and with adapters. Every sixth has no reference in its step."""
    r = random.Random(f"sharded/dpo/{seed}/{number}")
    ways = tuple(way for way in SHARDED_WAYS if way is not draw_fsdp)
    case = draw_sharded(seed + 6, number, DPO_FAMILIES, ways)
    return dataclasses.replace(
        case, lora_dropout=0.0, lora_targets="all" if case.lora else "", batch=r.choice([1, 1, 2]), vocab=between(r, 4000, 30000),
        sequence=between(r, 48, 600), dpo={"trainer": ("trl", "factory")[(number + number // 6) % 2], "reference": number % 6 != 5})


@kind("sharded-fused")
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


@kind("zero-gemma")
def draw_zero_gemma(seed: int, number: int) -> Case:
    """Case `number` of a seed of the first Gemma under stages 1 to 3 of DeepSpeed, in full training and with adapters."""
    return draw_sharded(seed + 7, number, ("gemma",), (draw_zero, draw_zero_lora, draw_zero3, draw_zero3_lora))
