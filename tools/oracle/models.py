"""Builds the transformers model of a case from a configuration. Nothing is downloaded, and under FakeTensorMode nothing
is allocated."""
from unittest import mock

import torch
import transformers

import adapter_kernels
import cut
import fused_head
import liger
import quantized
from cases import Case

DTYPES = {"fp32": torch.float32, "autocast": torch.float32, "bf16": torch.bfloat16}
# Where peft puts adapters. The router and the experts of Mixtral are parameters, not linear layers.
PROJECTIONS = {
    "gpt2": {"qv": ["c_attn"], "all": ["c_attn", "c_proj", "c_fc"]},
    "phi3": {"qv": ["qkv_proj"], "all": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]},
    "glm4": {"qv": ["q_proj", "v_proj"], "all": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "down_proj"]},
    "mixtral": {"qv": ["q_proj", "v_proj"], "all": ["q_proj", "k_proj", "v_proj", "o_proj"], "experts": ["w1", "w3", "w2"],
                "experts+attention": ["q_proj", "k_proj", "v_proj", "o_proj", "w1", "w3", "w2"]},
    "gpt_oss": {"qv": ["q_proj", "v_proj"], "all": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    "qwen3_moe": {"qv": ["q_proj", "v_proj"], "all": ["q_proj", "k_proj", "v_proj", "o_proj"],
                  "experts": ["gate_proj", "up_proj", "down_proj"],
                  "experts+attention": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]},
}
DENSE = {"qv": ["q_proj", "v_proj"],
         "all": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}


def gpt2_config(c: Case):
    return transformers.GPT2Config(
        vocab_size=c.vocab, n_positions=c.sequence, n_embd=c.hidden, n_layer=c.layers, n_head=c.heads,
        n_inner=c.intermediate, resid_pdrop=c.dropout, embd_pdrop=c.dropout, attn_pdrop=c.dropout,
        tie_word_embeddings=c.tied, use_cache=False, bos_token_id=None, eos_token_id=None)


def config_of(c: Case):
    """The configuration object of transformers for a case."""
    if c.family == "gpt2":
        return gpt2_config(c)
    keys = {
        "vocab_size": c.vocab, "hidden_size": c.hidden, "intermediate_size": c.intermediate,
        "num_hidden_layers": c.layers, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads,
        "max_position_embeddings": max(2048, c.sequence), "tie_word_embeddings": c.tied, "use_cache": False,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }
    if c.family not in ("phi3", "qwen2"):
        keys["head_dim"] = c.head_dim
    if c.family in ("mistral", "mixtral", "phi3"):
        keys["sliding_window"] = c.window or None
    if c.family == "phi3":
        keys["original_max_position_embeddings"] = keys["max_position_embeddings"]
    if c.family in ("gemma2", "gemma3", "olmo3"):
        keys["sliding_window"] = c.window or 4096
        kinds = ["sliding_attention", "full_attention"] if c.window else ["full_attention"]
        keys["layer_types"] = [kinds[i % len(kinds)] for i in range(c.layers)]
    if c.family in ("gemma2", "gemma3"):
        keys["query_pre_attn_scalar"] = c.head_dim
    if c.family == "gemma2":
        keys["attn_logit_softcapping"] = c.softcap or None
        keys["final_logit_softcapping"] = c.final_softcap or None
    if c.family == "mixtral":
        keys |= {"num_local_experts": c.experts, "num_experts_per_tok": c.experts_per_token}
    if c.family == "gpt_oss":
        keys |= {"num_local_experts": c.experts, "num_experts_per_tok": c.experts_per_token, "sliding_window": c.window or 128}
        kinds = ["sliding_attention", "full_attention"] if c.window else ["full_attention"]
        keys["layer_types"] = [kinds[i % len(kinds)] for i in range(c.layers)]
    if c.family == "qwen3_moe":
        keys |= {"num_experts": c.experts, "num_experts_per_tok": c.experts_per_token, "norm_topk_prob": True,
                 "moe_intermediate_size": c.intermediate}
    if c.family == "smollm3":
        keys["no_rope_layers"] = [1 - i % 2 for i in range(c.layers)]
    if c.family == "seed_oss":
        keys |= {"attention_dropout": c.dropout, "residual_dropout": c.dropout}
    name = {"glm4": "Glm4", "seed_oss": "SeedOss", "llama": "Llama", "smollm3": "SmolLM3", "granite": "Granite", "olmo2": "Olmo2", "olmo3": "Olmo3", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral", "gemma": "Gemma", "gemma2": "Gemma2",
            "gemma3": "Gemma3Text", "phi3": "Phi3", "mixtral": "Mixtral", "qwen3_moe": "Qwen3Moe", "gpt_oss": "GptOss"}[c.family]
    return getattr(transformers, name + "Config")(**keys)


def build(c: Case) -> torch.nn.Module:
    """The model in training mode. Called under FakeTensorMode, unless the tensors shall be real."""
    config = config_of(c)
    config._attn_implementation = c.attention
    if c.experts and not c.release:
        config._experts_implementation = "grouped_mm"  # the default on a GPU; the loop over experts depends on values
    model = transformers.AutoModelForCausalLM.from_config(
        config, **{"torch_dtype" if c.release in ("4.45", "4.48") else "dtype": DTYPES[c.precision]})
    if c.liger:
        model = liger.applied(model, c)
    if c.cut:
        model = cut.applied(model, c)
    if c.quantized:
        model = quantized.prepared(quantized.replaced(model, c), c)
    if c.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": bool(c.reentrant)})
    if c.lora:
        model = add_lora(model, c)
    if c.axolotl is not None:
        model = adapter_kernels.applied(model, c)
    if c.fused:
        model = fused_head.applied(model, c)
    return model.train()


def add_lora(model, c: Case):
    import peft

    if c.checkpoint:
        model.enable_input_require_grads()  # as the Trainer does: else no layer of a frozen model has a gradient
    targets = PROJECTIONS.get(c.family, DENSE)[c.lora_targets]
    config = peft.LoraConfig(r=c.lora, lora_alpha=2 * c.lora, target_modules=targets, lora_dropout=c.lora_dropout, rank_pattern=c.ranks or {},
                             task_type="CAUSAL_LM", fan_in_fan_out=c.family == "gpt2")
    # Module.to() fails on fake parameters. peft casts adapters to the type of the model with it, and back to f32 later.
    with mock.patch.object(torch.nn.Module, "to", lambda module, *args, **kwargs: module):
        model = peft.get_peft_model(model, config)
    if c.quantized and "adapters" in c.quantized:  # SFTTrainer.__init__()
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(torch.bfloat16)
    return model
