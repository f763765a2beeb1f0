"""The trained models: the two models with bounds, random shapes, and run-file keys for the program."""
import array
import os
import random

from model import Dims

MODELS = {m.name: m for m in [
    #             H     L   A   K   I     V      S     tied
    Dims("350M", 1024, 24, 16, 16, 2816, 32768, 2048, True, {"bf16": 190e3, "tf32": 75e3}),
    Dims("1.1B", 2048, 22, 32, 4, 5632, 32000, 2048, False, {"bf16": 80e3, "tf32": 35e3}),
]}
# In their place for --quick: as many sequences, next to no work.
TINY = {
    "350M": Dims("350M", 32, 2, 2, 2, 48, 256, 16, True),
    "1.1B": Dims("1.1B", 48, 2, 3, 1, 64, 256, 16, False),
}
MODES = ("resident", "hybrid", "streamed")
PRECISIONS = ("fp32", "tf32", "bf16")
FIRST_SEED = 11


def write_tokens(folder: str, vocab: int, count: int) -> str:
    """Writes random little-endian uint16 ids; the program restarts at the end of the file."""
    path = os.path.join(folder, f"tokens-{vocab}.bin")
    if not os.path.exists(path):
        ids = array.array("H", random.Random(1).choices(range(vocab), k=count))
        with open(path, "wb") as f:
            f.write(ids.tobytes())
    return path


def shape_keys(m: Dims) -> dict:
    return {
        "model.model_type": "llama",
        "model.hidden_size": m.hidden,
        "model.num_hidden_layers": m.layers,
        "model.num_attention_heads": m.heads,
        "model.num_key_value_heads": m.kv_heads,
        "model.head_dim": m.hidden // m.heads,
        "model.intermediate_size": m.intermediate,
        "model.vocab_size": m.vocab,
        "model.tie_word_embeddings": str(m.tied).lower(),
        "model.initializer_range": 0.02,
        "data.seq_len": m.seq,
    }


def run_keys(m: Dims, tokens: str, precision: str, mode: str, micro_batch: int, accumulate: int, steps: int) -> dict:
    """Keys of one run, with the optimizer of torch_step.py. Raw ids without validation data, so a run consists of its
    steps."""
    return {
        **shape_keys(m),
        "data.train": tokens,
        "data.order": "sequential",
        "train.precision": precision,
        "train.micro_batch": micro_batch,
        "train.grad_accum": accumulate,
        "train.steps": steps,
        "train.recompute": "none",
        "optimizer.name": "adamw",
        "optimizer.lr": 1e-4,
        "optimizer.betas": "[0.9, 0.95]",
        "optimizer.weight_decay": 0.1,
        "optimizer.grad_clip": 1.0,
        "optimizer.schedule": "constant",
        "optimizer.warmup_steps": 0,
        "plugin.cuda.mode": mode,
    }


def random_shapes(count: int, largest: int) -> list:
    """(Dims, mode, precision, micro_batch, accumulate, recompute), the same in every run. Every mode occurs with every
    precision; widths are odd and even, because bytes are lost to alignment."""
    rng, out = random.Random(FIRST_SEED), []
    for i in range(count):
        kv, group, dim = rng.randint(1, 3), rng.randint(1, 3), 2 * rng.randint(1, 32)
        hidden = kv * group * dim
        m = Dims(
            f"shape {i + 1}",
            hidden,
            rng.randint(1, 4),
            kv * group,
            kv,
            rng.randint(1, largest),
            rng.randint(256, 256 + 8 * largest),
            rng.randint(1, largest),
            bool(i % 2),
        )
        out.append(
            (
                m,
                MODES[i % 3],
                PRECISIONS[i // 3 % 3],
                rng.randint(1, 4),
                rng.randint(1, 3),
                ("none", "selective", "full")[i % 4 % 3],
            )
        )
    return out
