#!/usr/bin/env python3
"""`trainhost generate` continues prompts with the tokens of transformers.

  generation.py BUILD_DIR

Writes small random models of each family with transformers, in f32 and bf16, and compares the greedy continuation of
several prompts, one at a time and together, with `model.generate()` in float32. Two settings of generation_config.json
that do not depend on a random generator are compared as well: a repetition penalty and several end tokens. Exit 77
(skipped, with the reason) where torch or transformers is missing.
"""
import json, os, re, subprocess, sys, tempfile

try:
    import torch
    import transformers
except Exception as e:  # not installed, or not usable here
    print(f"skipped: torch and transformers are needed ({e})")
    sys.exit(77)

build = os.path.abspath(sys.argv[1])
NEW_TOKENS = 30
BASE = dict(vocab_size=256, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=96, max_position_embeddings=256, initializer_range=0.3, bos_token_id=None,
            eos_token_id=None, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16, rope_theta=500000.0)
CASES = {
    "llama": transformers.LlamaConfig(**BASE),
    "llama 3, tied, biases": transformers.LlamaConfig(**BASE, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                                                      head_dim=32, rope_parameters=LLAMA3),
    "mistral with a window": transformers.MistralConfig(**BASE, sliding_window=16),
    "qwen2": transformers.Qwen2Config(**BASE, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**BASE, head_dim=32, tie_word_embeddings=False),
}
PROMPTS = ["Once upon a time", "x", "The cat sat on the mat, and then the dog came along to see what it was all about."]


def ours(folder, prompts, *options):
    """The new texts, as lists of bytes."""
    path = os.path.join(folder, "prompts.jsonl")
    with open(path, "w") as f:
        f.writelines(json.dumps({"prompt": p}) + "\n" for p in prompts)
    r = subprocess.run([f"{build}/bin/trainhost", "generate", folder, "--prompts", path, "--backend=cpu", "-q",
                        "--tokens", str(NEW_TOKENS), *options], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in r.stdout.splitlines()]


def comparable(text):
    """Programs differ in how many U+FFFD they write for a sequence of bytes that is not UTF-8."""
    return re.sub("\ufffd+", "\ufffd", text)


def text_of(ids):
    return comparable(bytes(ids).decode("utf-8", errors="replace"))


compared = 0
with tempfile.TemporaryDirectory() as tmp:
    for name, config in CASES.items():
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(len(name))
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(dtype)
            for parameter in model.parameters():  # norms other than one, biases other than zero
                if parameter.dim() == 1:
                    parameter.data += torch.randn_like(parameter) * 0.2
            folder = os.path.join(tmp, name.replace(" ", "-") + str(dtype)[6:])
            model.generation_config.pad_token_id = 0
            for penalty, ends in ((1.0, None), (1.3, None), (1.0, list(range(100, 110)))):
                model.generation_config.update(repetition_penalty=penalty, eos_token_id=ends)
                model.save_pretrained(folder)
                wide = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                                         dtype=torch.float32)
                theirs = []
                for p in PROMPTS:
                    ids = torch.tensor([list(p.encode())])
                    with torch.no_grad():
                        out = wide.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                            max_new_tokens=NEW_TOKENS)
                    theirs.append(out[0, ids.shape[1]:].tolist())
                # One text at a time, and together.
                for options in (["--batch=3", "--threads=1"],) + ((["--batch=1"],) if penalty == 1 and not ends else ()):
                    for result, expected in zip(ours(folder, PROMPTS, *options), theirs):
                        ended = bool(ends) and expected[-1] in ends
                        assert comparable(result["completion"]) == text_of(expected[:-1] if ended else expected), \
                            f"{name} {dtype} {penalty} {ends}: {result} instead of {expected}"
                        assert result["completion_tokens"] == len(expected), (result, expected)
                        assert result["finish_reason"] == ("stop" if ended else "length"), (result, expected)
                        compared += 1
            print(f"{name}, {str(dtype)[6:]}: the same tokens")
print(f"{compared} continuations are those of transformers {transformers.__version__} (torch {torch.__version__})")
