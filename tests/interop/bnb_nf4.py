#!/usr/bin/env python3
"""NF4 and the 8-bit dynamic map of bitsandbytes: writes tests/core/model/nf4_cases.inc.

    bnb_nf4.py [FILE]            (default: tests/core/model/nf4_cases.inc; needs torch and bitsandbytes)

Each line is one tensor: number of elements, double quantization, and FNV-1a over the codes, over the scales (8-bit with
their f32 scales, or f32), and over the values in f32 and in bf16 that they stand for; and the mean of the scales. The
portable backend of bitsandbytes computes them; its CPU library searches 8-bit scales approximately, and the script
prints how many differ. The mean is summed in float64. tests/core/model/nf4_test.cpp has the same elements().
"""
import inspect
import pathlib
import sys

import bitsandbytes
import bitsandbytes.backends.default.ops as default
import bitsandbytes.functional as F
import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = [(1, 0), (1, 1), (2, 1), (63, 1), (64, 0), (64, 1), (65, 1), (4096, 0), (4096, 1), (64 * 256, 1),
         (64 * 256 + 64, 1), (64 * 256 * 3 + 64 * 17 + 5, 0), (64 * 256 * 3 + 64 * 17 + 5, 1), (200000, 1)]


def elements(n):
    """x^3 of uniform x; every 7th block is zero, every 11th tiny."""
    with np.errstate(over="ignore"):
        z = (np.arange(n, dtype=np.uint64) + np.uint64(n)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    x = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    v = x * x * x * np.float32(0.05)
    block = np.arange(n) // 64
    v[block % 11 == 10] *= np.float32(1e-30)
    v[block % 7 == 6] = 0
    return torch.from_numpy(v)


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"0x{h:016x}"


def portable_operations():
    """The functions of the portable backend by the name of their operation. They are anonymous, so their source is
    compiled again with a name."""
    source, scope = inspect.getsource(default), vars(default)
    for part in source.split('@register_kernel("bitsandbytes::')[1:]:
        name, body = part.split('", "default")\ndef _', 1)
        if "." in name:  # a variant with an output argument
            continue
        exec(f"def portable_{name}" + body.split("\n\n\n", 1)[0], scope)
        yield name, scope[f"portable_{name}"]


def round_trip(w):
    """The values of a matrix in NF4 with double quantization."""
    ops, code = dict(portable_operations()), F.create_dynamic_map()
    packed, absmax = ops["quantize_4bit"](w.float(), 64, "nf4", torch.uint8)
    mean = absmax.double().mean().float()
    q, nested = ops["quantize_blockwise"](absmax - mean, code, 256)
    scales = ops["dequantize_blockwise"](q, nested, code, 256, torch.float32) + mean
    return ops["dequantize_4bit"](packed, scales, 64, "nf4", list(w.shape), torch.float32)


def main(path):
    ops = dict(portable_operations())
    code = F.create_dynamic_map()
    lines = []
    for n, doubled in CASES:
        x = elements(n)
        packed, absmax = ops["quantize_4bit"](x, 64, "nf4", torch.uint8)
        mean = np.float32(0)
        scales = absmax.numpy().tobytes()
        real = absmax
        if doubled:
            mean = np.float32(absmax.double().mean().item())
            rest = absmax - torch.tensor(mean)
            q, nested = ops["quantize_blockwise"](rest, code, 256)
            real = ops["dequantize_blockwise"](q, nested, code, 256, torch.float32) + torch.tensor(mean)
            scales = nested.numpy().tobytes() + q.numpy().tobytes()
            library, _ = F.quantize_blockwise(rest, blocksize=256)
            torch_mean = absmax.mean().item()
            print(f"{n}: CPU library: {(library != q).sum().item()} of {q.numel()} scales differ; "
                  f"mean of torch / of float64 - 1 = {torch_mean / float(mean) - 1:.1e}")
        value = ops["dequantize_4bit"](packed, real, 64, "nf4", [n], torch.float32)
        bf16 = ops["dequantize_4bit"](packed, real, 64, "nf4", [n], torch.bfloat16)
        lines.append("{%d, %s, %s, %s, %s, %s, %sf},\n" % (
            n, "true" if doubled else "false", fnv(packed.numpy().tobytes()), fnv(scales),
            fnv(value.numpy().tobytes()), fnv(bf16.view(torch.int16).numpy().tobytes()), float(mean).hex()))
    maps = "".join(f"constexpr std::uint64_t k{text}Map = {fnv(F.create_dynamic_map(signed=signed).numpy().tobytes())};\n"
                   for text, signed in (("Signed", True), ("Unsigned", False)))
    path.write_text(f"// Written by tests/interop/bnb_nf4.py with bitsandbytes {bitsandbytes.__version__}.\n{maps}"
                    "const Case kCases[] = {\n" + "".join(lines) + "};\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/core/model/nf4_cases.inc")
