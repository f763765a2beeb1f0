#!/usr/bin/env python3
"""The readers of config.json of newer families agree with Hugging Face transformers.

  model_families.py BUILD_DIR [--random N] [--presets] [--family NAME]

--random N   N random small configs per family: the number of trained weights, and the bytes of the cache after 48 tokens
             of 2 sequences in f32, as transformers has them (windows, chunks and states of linear attention included).
             Each config is read as a user writes it and as transformers saves it.
--presets    the weights of every preset of those families, which transformers creates on the device `meta`.
Prints one line per family and, with --presets, the totals that tests/core/model/totals_test.cpp holds. Exit 77 (skipped,
with the reason) where torch or transformers is missing.
"""
import argparse, json, os, random, subprocess, sys

try:
    import torch
    import transformers
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
except Exception as e:
    print(f"skipped: torch and transformers are needed ({e})")
    sys.exit(77)

transformers.logging.set_verbosity_error()
NESTED = {"gemma4": "gemma4_text", "llama4": "llama4_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
          "mistral3": "ministral3", "kimi_k25": "deepseek_v3", "qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text",
          "qwen3_vl": "qwen3_vl_text", "qwen3_vl_moe": "qwen3_vl_moe_text"}


def base(r, kv=True):
    heads = r.choice([4, 8])
    c = dict(vocab_size=r.randint(60, 90), hidden_size=64 * r.randint(1, 2), num_hidden_layers=r.randint(2, 9),
             num_attention_heads=heads, max_position_embeddings=128, tie_word_embeddings=r.random() < 0.5)
    if kv:
        c["num_key_value_heads"] = r.choice([1, 2, heads])
    return c


def dense(r, bias="attention_bias", **more):
    c = dict(base(r), intermediate_size=4 * r.randint(2, 10), **more)
    if bias:
        c[bias] = r.random() < 0.5
    return c


def delta_net(r):
    keys = r.choice([1, 2])
    return dict(num_hidden_layers=r.randint(4, 9), linear_num_key_heads=keys, linear_num_value_heads=keys * r.randint(1, 3), linear_key_head_dim=r.choice([4, 8]),
                linear_value_head_dim=r.choice([4, 16]), linear_conv_kernel_dim=r.randint(2, 4), head_dim=r.choice([8, 16]))


def qwen_experts(r):
    return dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=4 * r.randint(1, 5),
                shared_expert_intermediate_size=4 * r.randint(1, 5))


def gemma4(r):
    c = dense(r, head_dim=8, global_head_dim=r.choice([8, 16]), sliding_window=r.choice([16, 64]))
    layers = c["num_hidden_layers"] = r.randint(7, 13)
    if r.random() < 0.5:
        c.update(attention_k_eq_v=True, num_global_key_value_heads=r.choice([1, 2]))
    if r.random() < 0.5:
        c.update(num_kv_shared_layers=r.randint(1, layers - 6), use_double_wide_mlp=r.random() < 0.5)
    c["hidden_size_per_layer_input"] = r.choice([0, 4])
    c["vocab_size_per_layer_input"] = c["vocab_size"]
    if r.random() < 0.5:
        c.update(enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=12)
    return c


def granite_hybrid(r):
    c = dense(r)
    c.update(mamba_n_heads=4, mamba_d_head=c["hidden_size"] // 2, mamba_n_groups=r.choice([1, 2]), mamba_d_state=8,
             mamba_d_conv=r.randint(2, 4), mamba_conv_bias=r.random() < 0.5, mamba_proj_bias=r.random() < 0.5,
             mamba_chunk_size=16, num_local_experts=r.choice([0, 4]), num_experts_per_tok=2,
             shared_intermediate_size=4 * r.randint(1, 5))
    c["layer_types"] = [r.choice(["mamba", "attention"]) for _ in range(c["num_hidden_layers"] - 1)] + ["attention"]
    return c


def nemotron_h(r):
    c = dense(r, bias="mlp_bias", head_dim=8, mamba_num_heads=4, mamba_head_dim=8, n_groups=r.choice([1, 2, 4]),
              ssm_state_size=8, conv_kernel=r.randint(2, 4), chunk_size=16, use_conv_bias=r.random() < 0.5,
              use_bias=r.random() < 0.5, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
              moe_shared_expert_intermediate_size=10, moe_latent_size=r.choice([None, 16]))
    del c["num_hidden_layers"]
    c["hybrid_override_pattern"] = "".join(r.choice("M*-E") for _ in range(r.randint(3, 9))) + "*"
    return c


def lfm2(r):
    c = dense(r, None, conv_L_cache=r.randint(2, 4), conv_bias=r.random() < 0.5, block_multiple_of=r.choice([4, 8]),
              block_auto_adjust_ff_dim=r.random() < 0.5, block_ffn_dim_multiplier=r.choice([1.0, 1.5]))
    c["layer_types"] = [r.choice(["conv", "full_attention"]) for _ in range(c["num_hidden_layers"] - 1)] + ["full_attention"]
    return c


def lfm2_moe(r):
    c = dense(r, None, conv_L_cache=r.randint(2, 4), conv_bias=r.random() < 0.5, num_experts=4, num_experts_per_tok=2,
              moe_intermediate_size=12, num_dense_layers=r.choice([0, 1, 2]))
    c["layer_types"] = [r.choice(["conv", "full_attention"]) for _ in range(c["num_hidden_layers"] - 1)] + ["full_attention"]
    return c


def kimi_linear(r):
    c = dict(base(r, kv=False), pad_token_id=0, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, intermediate_size=20,
             moe_intermediate_size=8, num_experts=8, num_shared_experts=r.choice([1, 2]), num_experts_per_token=2,
             first_k_dense_replace=r.choice([0, 1, 2]))
    layers = range(1, c["num_hidden_layers"] + 1)
    full = [i for i in layers if r.random() < 0.4] or [1]
    c["linear_attn_config"] = dict(full_attn_layers=full, kda_layers=[i for i in layers if i not in full], head_dim=r.choice([8, 16]),
                                   num_heads=r.choice([2, 4]), short_conv_kernel_size=r.randint(2, 4))
    return c


def llama4(r):
    return dense(r, head_dim=8, intermediate_size_mlp=20, num_local_experts=4, num_experts_per_tok=1,
                 interleave_moe_layer_step=r.choice([1, 2]), attention_chunk_size=r.choice([16, 64, None]),
                 use_qk_norm=r.random() < 0.5)


def deepseek(r):
    return dict(base(r, kv=False), num_key_value_heads=None, q_lora_rank=r.choice([None, 12]), kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8,
                v_head_dim=8, intermediate_size=20, moe_intermediate_size=8, n_routed_experts=8, n_shared_experts=1,
                num_experts_per_tok=2, first_k_dense_replace=1, n_group=1, topk_group=1, attention_bias=r.random() < 0.5)


def qwen2_vl(r):
    c = dense(r, None)
    angles = c["hidden_size"] // c["num_attention_heads"] // 2
    part = angles // 4  # of height and width; the rest is of time
    c["rope_scaling"] = {"type": "mrope", "rope_type": "default", "mrope_section": [angles - 2 * part, part, part]}
    return c


def qwen_vl_moe(r):
    return dense(r, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=4 * r.randint(1, 5),
                 decoder_sparse_step=r.choice([1, 2]), mlp_only_layers=r.choice([[], [0]]))


FAMILIES = {
    "ernie4_5": lambda r: dense(r, "use_bias", head_dim=r.choice([8, None])),
    "ernie4_5_moe": lambda r: dense(r, "use_bias", moe_intermediate_size=8, moe_num_experts=4, moe_k=2,
                                    moe_num_shared_experts=r.choice([0, 1, 2]), moe_layer_start_index=r.choice([0, 1]),
                                    moe_layer_end_index=r.choice([-1, 1]), moe_layer_interval=r.choice([1, 2])),
    "gemma4": gemma4,
    "gemma4_text": gemma4,
    "granitemoe": lambda r: dense(r, num_local_experts=4, num_experts_per_tok=2),
    "granitemoehybrid": granite_hybrid,
    "granitemoeshared": lambda r: dense(r, num_local_experts=4, num_experts_per_tok=2,
                                        shared_intermediate_size=r.choice([0, 10])),
    "hunyuan_v1_dense": lambda r: dense(r, head_dim=8),
    "hunyuan_v1_moe": lambda r: dense(r, head_dim=8, num_experts=4, moe_topk=2),
    "kimi_k2": deepseek,
    "kimi_k25": deepseek,
    "kimi_linear": kimi_linear,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "llama4": llama4,
    "llama4_text": llama4,
    "minimax_m2": lambda r: dense(r, None, head_dim=8, num_local_experts=4, num_experts_per_tok=2),
    "ministral": lambda r: dense(r, None, head_dim=8, sliding_window=r.choice([16, 64])),
    "ministral3": lambda r: dense(r, None, head_dim=8),
    "mistral3": lambda r: dense(r, None, head_dim=8),
    "mistral4": deepseek,
    "nemotron": lambda r: dense(r, mlp_bias=r.random() < 0.5, head_dim=8),
    "nemotron_h": nemotron_h,
    "phimoe": lambda r: dense(r, num_local_experts=4, num_experts_per_tok=2, lm_head_bias=r.random() < 0.5),
    "qwen2_5_vl": qwen2_vl,
    "qwen2_5_vl_text": qwen2_vl,
    "qwen2_vl": qwen2_vl,
    "qwen2_vl_text": qwen2_vl,
    "qwen3_5": lambda r: dense(r) | delta_net(r),
    "qwen3_5_moe": lambda r: base(r) | delta_net(r) | qwen_experts(r),
    "qwen3_5_moe_text": lambda r: base(r) | delta_net(r) | qwen_experts(r),
    "qwen3_5_text": lambda r: dense(r) | delta_net(r),
    "qwen3_next": lambda r: dense(r, decoder_sparse_step=r.choice([1, 2]), mlp_only_layers=r.choice([[], [0]]))
    | delta_net(r) | qwen_experts(r),
    "qwen3_vl": lambda r: dense(r, head_dim=8),
    "qwen3_vl_moe": qwen_vl_moe,
    "qwen3_vl_moe_text": qwen_vl_moe,
    "qwen3_vl_text": lambda r: dense(r, head_dim=8),
}


class WithHead(torch.nn.Module):
    """A decoder that transformers has as a part of a multimodal model only, without its head."""

    def __init__(self, config, dtype):
        super().__init__()
        self.model = AutoModel.from_config(config, dtype=dtype)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False, dtype=dtype)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens, use_cache):
        return self.model(input_ids=tokens, use_cache=use_cache)


def decoder(config, dtype):
    if "_vl" in config.model_type or config.model_type == "mistral4":
        return WithHead(config, dtype)
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


def text_config(family, config):
    """The config of the decoder as transformers has it."""
    inner = dict(config.get("text_config", config))
    inner.pop("model_type", None)
    kind = {"kimi_k2": "deepseek_v3"}.get(family, NESTED.get(family, family))
    made = AutoConfig.for_model(kind, **inner)
    made.tie_word_embeddings = config.get("tie_word_embeddings", getattr(made, "tie_word_embeddings", False))
    return made


def trained(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def cache_bytes(model, vocabulary):
    out = model.eval()(torch.randint(0, vocabulary, (2, 48)), use_cache=True)
    total = 0
    for layer in (out.past_key_values if "past_key_values" in out else out.cache).layers:
        # A layer with a window keeps its keys before the next one, which joins them.
        window = getattr(layer, "sliding_window", None)
        for value in vars(layer).values():
            for t in value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else [value]:
                if torch.is_tensor(t) and t.is_floating_point():
                    tokens = t.shape[-2] if window and t.dim() == 4 else 0
                    whole = tokens + 1 if tokens and tokens == window - 1 else tokens
                    total += t.numel() * t.element_size() * max(whole, 1) // max(tokens, 1)
    return total


def counted(binary, configs):
    out = subprocess.run([binary], input="".join(json.dumps(c) + "\n" for c in configs), capture_output=True, text=True)
    return [line.split() if not line.startswith("error") else line for line in out.stdout.splitlines()]


def check_random(binary, family, n):
    wrong, caches = [], 0
    for seed in range(n):
        fields = FAMILIES[family](random.Random(f"{family} {seed}"))
        config = dict(fields, model_type=family)
        if family in NESTED:
            tied = fields.pop("tie_word_embeddings")
            config = dict(model_type=family, tie_word_embeddings=tied, text_config=dict(fields, model_type=NESTED[family]))
        made = text_config(family, config)
        torch.manual_seed(0)
        model = decoder(made, torch.float32)
        weights = trained(model)
        if family in ("kimi_k2", "kimi_k25"):  # trainhost counts the correction biases, buffers there
            weights += sum(b.numel() for name, b in model.named_buffers() if name.endswith("e_score_correction_bias"))
        saved = json.loads(made.to_json_string(use_diff=False))
        if family not in NESTED:
            saved["model_type"] = family
        else:
            saved = dict(config, text_config=saved)
        given, read_back = counted(binary, [config, saved])
        if isinstance(given, str) or isinstance(read_back, str):
            wrong.append(f"seed {seed}: {given} / {read_back}: {json.dumps(config)}")
            continue
        if int(given[0]) != weights or int(read_back[0]) != weights or given[2] != "0":
            wrong.append(f"seed {seed}: {given} and {read_back}, transformers has {weights} weights: {json.dumps(config)}")
        try:
            cache = cache_bytes(model, made.vocab_size)
        except Exception:  # transformers cannot run some configs that it creates
            continue
        caches += 1
        if int(given[1]) != cache:
            wrong.append(f"seed {seed}: cache {given[1]}, transformers has {cache}: {json.dumps(config)}")
    if caches == 0:
        wrong.append("no config could be run")
    print(f"{family}: {n} configs, {caches} caches: {'equal' if not wrong else f'{len(wrong)} differ'}", flush=True)
    for text in wrong[:3]:
        print("  " + text)
    return not wrong


def check_presets(binary, only):
    good = True
    for line in subprocess.run([binary, "--presets"], capture_output=True, text=True).stdout.splitlines():
        name, text = line.split(" ", 1)
        config = json.loads(text)
        family = config["model_type"]
        if family not in FAMILIES or (only and family != only):
            continue
        made = text_config(family, config)
        with torch.device("meta"):
            model = decoder(made, torch.float32)
        weights = trained(model)
        if family in ("kimi_k2", "kimi_k25"):
            weights += sum(b.numel() for n, b in model.named_buffers() if n.endswith("e_score_correction_bias"))
        ours = counted(binary, [config])[0]
        good &= ours[0] == str(weights)
        print(f"{name} {weights:,} {'equal' if ours[0] == str(weights) else f'differs: {ours}'}", flush=True)
    return good


arguments = argparse.ArgumentParser()
arguments.add_argument("build")
arguments.add_argument("--random", type=int, default=0)
arguments.add_argument("--presets", action="store_true")
arguments.add_argument("--family", default="")
options = arguments.parse_args()
program = os.path.join(os.path.abspath(options.build), "tests", "interop_count_parameters")
passed = True
if options.random:
    for name in FAMILIES:
        if not options.family or name == options.family:
            passed &= check_random(program, name, options.random)
if options.presets:
    passed &= check_presets(program, options.family)
sys.exit(not passed)
