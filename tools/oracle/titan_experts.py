"""Experts of torchtitan 0.2: Qwen3-MoE and DeepSeek V3, with and without expert parallelism.

Which tokens an expert has depends on values; here every rank sends and receives equal numbers of them. Padding is that
of torchtitan: 8 rows for each expert.
"""
import contextlib

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param_group


def arguments(found, c):
    """MoEArgs of a case."""
    moe = c.fsdp["moe"]
    return found["models.moe.moe"].MoEArgs(
        num_experts=c.experts, num_shared_experts=moe["shared"], top_k=c.experts_per_token, score_func=moe["scores"],
        route_norm=True, route_scale=1.0, score_before_experts=False)


def qwen3(found, c):
    args = found["qwen3.model.args"].Qwen3ModelArgs(
        dim=c.hidden, n_layers=c.layers, n_heads=c.heads, n_kv_heads=c.kv_heads, vocab_size=c.vocab,
        head_dim=c.head_dim, max_seq_len=c.sequence, moe_enabled=True, moe_inter_dim=c.intermediate,
        moe_args=arguments(found, c))
    return found["qwen3.model.model"].Qwen3Model(args)


def deepseek(found, c):
    moe = c.fsdp["moe"]
    args = found["deepseek_v3.model.args"].DeepSeekV3ModelArgs(
        dim=c.hidden, n_layers=c.layers, n_dense_layers=moe["dense"], n_heads=c.heads, vocab_size=c.vocab,
        inter_dim=moe["dense_width"], moe_inter_dim=c.intermediate, max_seq_len=c.sequence, moe_args=arguments(found, c),
        q_lora_rank=moe["q_rank"], kv_lora_rank=moe["kv_rank"], qk_nope_head_dim=moe["nope"],
        qk_rope_head_dim=moe["rope"], v_head_dim=c.head_dim)
    return found["deepseek_v3.model.model"].DeepSeekV3Model(args)


def llama4(found, c):
    moe = c.fsdp["moe"]
    args = found["llama4.model.args"].TransformerModelArgs(
        dim=c.hidden, n_layers=c.layers, n_heads=c.heads, n_kv_heads=c.kv_heads, vocab_size=c.vocab, multiple_of=64,
        max_seq_len=c.sequence, auto_scale_hidden_dim=False, interleave_moe_layer_step=moe["step"],
        moe_args=found["models.moe.moe"].MoEArgs(num_experts=c.experts, top_k=c.experts_per_token))
    return found["llama4.model.model"].Transformer(args)


def without_values(found):
    """Replaces what reads values, or runs a kernel of Triton."""
    utils, parallel = found["models.moe.utils"], found["torchtitan.distributed.expert_parallel"]
    utils._round_up = lambda x, y: -(-x // y) * y

    def indices(tokens, experts_per_rank, ranks, length, alignment, use_cpu=False):
        return (torch.empty(length, dtype=torch.int32), torch.empty(experts_per_rank, dtype=torch.int32),
                torch.empty(experts_per_rank, dtype=torch.int32))

    utils.generate_permute_indices = indices

    def dispatch(self, mod, inputs, device_mesh):
        rows, tokens = inputs
        ranks = device_mesh.shape[0]
        self.input_splits = self.output_splits = [rows.shape[0] // ranks] * ranks
        rows = parallel.all_to_all_single_autograd(rows, self.output_splits, self.input_splits, device_mesh.get_group())
        self.input_shape, rows, self.permuted_indices, tokens = parallel._permute(
            rows, tokens, ranks, tokens.shape[0] // ranks)
        return rows, tokens

    combine = parallel.ExpertParallel._token_combine

    def combine_and_forget(self, mod, rows, device_mesh):
        rows = combine(self, mod, rows, device_mesh)
        self.permuted_indices = None  # 4 bytes per row, which stay until the next call
        return rows

    if not hasattr(parallel, "replaced"):
        parallel.replaced = True
        parallel.ExpertParallel._token_dispatch, parallel.ExpertParallel._token_combine = dispatch, combine_and_forget
        # The numbers of tokens have the type of the indices, as on CUDA.
        # Selective checkpointing does not ignore these calls in units inside of a region, in torch 2.15.
        _fsdp_param_group.record_function = torch.profiler.record_function = lambda name: contextlib.nullcontext()
        torch.histc = lambda x, bins, min, max: torch.empty(bins, dtype=x.dtype)
