"""The models of torchtune (Llama 3.2, Qwen 2 and 3, Gemma, Gemma 2, Phi-3) with its activation checkpointing, adapters, NF4 weights and losses.

A case with `tune` holds {"loss": "plain" (CrossEntropyLoss of torch), "chunked" (CEWithChunkedOutputLoss), "linear"
(LinearCrossEntropyLoss) or "moved" (CrossEntropyLoss of a copy of the logits without the last token, as the recipes had it
until August 2024, which then used FSDP1), "in_backward": every parameter has its own optimizer, which runs when its gradient is complete,
"nf4": the frozen linear layers are NF4 tensors of torchao, "packed": the positions of the tokens are given}. All tensors are
bf16, as with `dtype: bf16` in the recipes. No label is ignored.
"""
import functools
import types
from unittest import mock

import torch

import flat
import packages

QWEN = ("torchtune.models.qwen2._positional_embeddings", "torchtune.models.qwen3._attention",
        "torchtune.models.qwen2._component_builders", "torchtune.models.qwen3._component_builders")
GEMMA = ("torchtune.models.gemma.rms_norm", "torchtune.models.gemma.gemma_norm_embedding",
         "torchtune.models.gemma2._attention", "torchtune.models.phi3._position_embeddings",
         "torchtune.models.gemma._component_builders", "torchtune.models.gemma2._component_builders",
         "torchtune.models.phi3._component_builders")
USED = ("torchtune.utils._import_guard", "torchtune.utils._logging", "torchtune.modules.attention_utils", "torchtune.modules.kv_cache",
        "torchtune.modules.attention", "torchtune.modules.feed_forward", "torchtune.modules.rms_norm",
        "torchtune.modules.position_embeddings", "torchtune.modules.tied_linear", "torchtune.modules.low_precision.nf4_linear",
        "torchtune.modules.transformer", "torchtune.modules.peft._utils", "torchtune.modules.peft.lora",
        "torchtune.models.llama3_1._position_embeddings", "torchtune.models.llama3_2._component_builders",
        "torchtune.modules.loss.loss_types", "torchtune.modules.loss.ce_chunked_output_loss",
        "torchtune.modules.loss.cross_entropy_loss", "torchtune.training.memory", "torchtune.training._grad_scaler")
EXPORTS = {"torchtune.modules.attention": ["MultiHeadAttention"], "torchtune.modules.feed_forward": ["FeedForward"],
           "torchtune.modules.rms_norm": ["RMSNorm"], "torchtune.modules.tied_linear": ["TiedLinear"],
           "torchtune.modules.low_precision.nf4_linear": ["FrozenNF4Linear"],
           "torchtune.modules.transformer": ["TransformerDecoder", "TransformerSelfAttentionLayer"],
           "torchtune.modules.peft._utils": ["AdapterModule", "LORA_ATTN_MODULES"],
           "torchtune.modules.peft.lora": ["LoRALinear"], "torchtune.utils._logging": ["get_logger", "deprecated"]}
EXPORTS |= {"torchtune.models.qwen2._positional_embeddings": ["Qwen2RotaryPositionalEmbeddings"],
            "torchtune.modules.position_embeddings": ["RotaryPositionalEmbeddings"]}
ATTENTION = {"qv": ["q_proj", "v_proj"], "most": ["q_proj", "v_proj", "output_proj"],
             "all": ["q_proj", "k_proj", "v_proj", "output_proj"]}
IGNORED = -100


@functools.cache
def modules():
    found = packages.modules("torchtune", (*USED, *QWEN, *GEMMA), "pip install --no-deps torchtune torchao", EXPORTS.items())
    qwen = found[len(USED):-len(GEMMA)][-2:]
    return types.SimpleNamespace(builders=dict(zip(("qwen2", "qwen3", "gemma", "gemma2", "phi3"), (*qwen, *found[-3:]))), **{name.rpartition(".")[2]: m for name, m in zip(USED, found)})


def builders_of(family: str):
    """The functions that build the model of a family, and the one with adapters."""
    module = modules().builders[family]
    return getattr(module, family), getattr(module, "lora_" + family)


class Trained:
    """The model of a case with the loss step of the recipes: labels are shifted already, and the outputs of the model are
    freed when the loss exists."""

    def __init__(self, model, loss, c):
        self.model, self.labels, self.positions, self._loss, self._c = model, None, None, loss, c
        self.logits = None

    def __call__(self, input_ids, labels):
        labels = self.labels
        tokens = (labels != IGNORED).sum()
        positions = {"input_pos": self.positions} if self._c.tune["packed"] else {}
        if self._c.tune["loss"] == "moved":
            return types.SimpleNamespace(loss=self._moved(input_ids, tokens))
        outputs = self.model(tokens=input_ids, **positions)
        if self._c.tune["loss"] == "plain":
            labels = labels.reshape(-1)
            outputs = outputs.reshape(-1, outputs.size(-1))
        loss = self._loss(outputs, labels)
        del outputs
        return types.SimpleNamespace(loss=loss if self._c.tune["in_backward"] else loss * tokens)


    def _moved(self, input_ids, tokens):
        """The variable `logits` of the recipe exists until the model has returned those of the next micro-batch."""
        self.logits = self.model(tokens=input_ids)
        self.logits = self.logits[..., :-1, :].contiguous()
        labels = self.labels[..., 1:].contiguous()
        self.logits = self.logits.transpose(1, 2)
        loss = self._loss(self.logits, labels)
        return loss if self._c.tune["in_backward"] else loss * tokens


def prepared(model, c):
    """What the distributed recipes did until August 2024: units of flat parameters, checkpoint wrappers inside."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    layer = modules().transformer.TransformerSelfAttentionLayer

    def is_unit(module, recurse, **unused):
        """lora_fsdp_wrap_policy(), and ModuleWrapPolicy() in full training."""
        return recurse or isinstance(module, layer) or bool(c.lora and getattr(module, "weight", None) is not None
                                                            and module.weight.requires_grad)

    with flat.replaced():
        model = FullyShardedDataParallel(model, auto_wrap_policy=is_unit, device_id=torch.device("cpu"))
    if c.checkpoint:
        modules().memory.set_activation_checkpointing(model, {layer})
    return model


def frozen_nf4(self, in_dim, out_dim, bias=False, device=None, dtype=None):
    """FrozenNF4Linear(), which exchanges the weight by swap_tensors(): fake tensors cannot be exchanged."""
    torch.nn.Linear.__init__(self, in_dim, out_dim, bias=bias)
    self.weight = torch.nn.Parameter(modules().nf4_linear.to_nf4(self.weight.detach()), requires_grad=False)


def build(c):
    m = modules()
    builders, sizes = m._component_builders, dict(
        vocab_size=c.vocab, num_layers=c.layers, num_heads=c.heads, num_kv_heads=c.kv_heads, embed_dim=c.hidden,
        max_seq_len=c.sequence + 7, intermediate_dim=c.intermediate, tie_word_embeddings=c.tied)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        # The scaled angles depend on values.
        with (mock.patch.object(m._position_embeddings.Llama3ScaledRoPE, "apply_scaling", lambda self, f, *a: f),
              mock.patch.object(m.nf4_linear.FrozenNF4Linear, "__init__", frozen_nf4)):
            plain, with_adapters = builders.llama3_2, builders.lora_llama3_2
            if c.family != "llama":
                plain, with_adapters = builders_of(c.family)
                if c.family in ("gemma", "gemma2", "phi3"):  # the first two are tied, the last one is not
                    del sizes["tie_word_embeddings"]
                if c.family != "phi3":
                    sizes |= {"head_dim": c.head_dim}
                if c.family == "gemma2":
                    sizes |= {"sliding_window_size": c.window}
                if c.family == "qwen3":
                    sizes |= {"q_proj_bias": False, "k_proj_bias": False, "v_proj_bias": False, "q_norm": True, "k_norm": True}
            if c.lora:
                model = with_adapters(ATTENTION[c.lora_targets.removesuffix("+mlp")],
                                               c.lora_targets.endswith("+mlp"), lora_rank=c.lora, lora_alpha=16,
                                               lora_dropout=c.lora_dropout, quantize_base=c.tune["nf4"], **sizes)
                for name, p in model.named_parameters():
                    p.requires_grad = "lora_" in name
            else:
                model = plain(**sizes)
    finally:
        torch.set_default_dtype(before)
    if c.checkpoint and not flat.is_flat(c):
        m.memory.set_activation_checkpointing(model, {m.transformer.TransformerSelfAttentionLayer})
    loss = {"plain": torch.nn.CrossEntropyLoss, "moved": torch.nn.CrossEntropyLoss, "chunked": m.ce_chunked_output_loss.CEWithChunkedOutputLoss,
            "linear": m.cross_entropy_loss.LinearCrossEntropyLoss}[c.tune["loss"]]()
    if c.tune["loss"] == "chunked":
        model.set_num_output_chunks(loss.num_output_chunks)
    if c.tune["loss"] == "linear":
        loss.set_model_output(model)
    return Trained(model.train(), loss, c)


class InBackward:
    """The optimizers of a model whose step is part of the backward pass, as one."""

    def __init__(self, model, make):
        self.each = {p: make([p]) for p in model.parameters() if p.requires_grad}
        modules().memory.register_optim_in_bwd_hooks(model, self.each)

    def step(self):
        pass

    def zero_grad(self):
        pass


def scale_gradients(model, c):
    """Divides the gradients by the tokens of the step."""
    if not c.tune["in_backward"]:
        modules()._grad_scaler.scale_grads_(model.parameters(), 1.0 / torch.ones((), dtype=torch.int64))
