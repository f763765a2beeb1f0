"""Random cases of older releases of transformers."""
import dataclasses
import functools
import random

from cases import Case, FAMILIES, MODEL_FIELDS, between, draw, kind
from draw_families import model_of_family
from draw_fsdp import FSDP_FAMILIES, draw_accelerate, draw_accelerate_lora, draw_flat, draw_flat_lora

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


def add_kind(name: str, draw_case, release: str):
    """The cases of one release; the function that draws them takes it as its first argument."""
    drawn = functools.update_wrapper(functools.partial(draw_case, release), draw_case)
    kind(name)(drawn)


for name in RELEASE_FAMILIES:
    add_kind(f"release-{name}", draw_release, name)
    add_kind(f"release-{name}-flat", draw_release_flat, name)
    add_kind(f"release-{name}-fsdp2", draw_release_fsdp2, name)
add_kind("release-4.57-experts", draw_release_experts, "4.57")
add_kind("release-4.48-mixtral", draw_release_mixtral, "4.48")
