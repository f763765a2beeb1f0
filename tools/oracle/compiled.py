"""Bytes per token that a decoder layer of transformers saves for the backward pass when torch.compile compiles it whole.

  compiled.py FAMILY lora|full [TOKENS HIDDEN HEADS KV_HEADS HEAD_DIM INTERMEDIATE RANK]

FAMILY: llama, mistral, qwen2, qwen3. Unsloth compiles each layer so, with Inductor. Which tensors are saved is decided before
it, by the partitioner of AOTAutograd with the decompositions of Inductor; the graphs then run as they are, on the CPU. Under
autocast in bf16, with weights in bf16 and adapters in f32. Prints the bytes of the storages that are saved, without the input
of the layer, weights and tables of angles, which exist anyway.
"""
import functools
import sys

import torch
import transformers
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from peft import LoraConfig, get_peft_model
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table

CONFIGS = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig, "qwen2": transformers.Qwen2Config,
           "qwen3": transformers.Qwen3Config}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def saved_bytes(family, adapters, tokens, hidden, heads, kv_heads, head_dim, intermediate, rank):
    config = CONFIGS[family](hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
                             intermediate_size=intermediate, num_hidden_layers=1, vocab_size=256, attn_implementation="sdpa")
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    base = model.model
    if adapters:
        model = get_peft_model(model, LoraConfig(r=rank, target_modules=TARGETS))
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.float()
    compiler = lambda graph, inputs: make_boxed_func(graph.forward)
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=select_decomp_table(),
                           partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"))
    layer = torch.compile(base.layers[0], backend=backend)
    x = torch.randn(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
    positions = torch.arange(tokens)[None]
    angles = base.rotary_emb(x, positions)
    known = {t.untyped_storage().data_ptr() for t in (x, *angles, *model.parameters())}
    kept = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = (t, storage.nbytes())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x, position_embeddings=angles, attention_mask=None, position_ids=positions)
    # Tensors without a dimension per token are casts of adapters.
    return sum(size for t, size in kept.values() if tokens in t.shape)


if __name__ == "__main__":
    sizes = [int(n) for n in sys.argv[3:]] or [1000, 512, 8, 2, 64, 1792, 16]
    print(*sys.argv[1:3], *sizes, saved_bytes(sys.argv[1], sys.argv[2] == "lora", *sizes) / sizes[0])
