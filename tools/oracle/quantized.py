"""Models of transformers whose linear layers bitsandbytes quantizes to 4 bits (8 bits: int8.py), with adapters of peft (QLoRA).

The `quantized` of a case: "type" nf4 or fp4; "double": block scales of 8 bits; "prepared": by
prepare_model_for_kbit_training() of peft, which casts all other weights to f32 (axolotl: and embedding, norms and head back; trl: and embedding and head back); "autocast": the forward pass runs under
autocast to bf16; "whole": packed as bytes, which FSDP2 does not shard. The operators of bitsandbytes have implementations for fake tensors. Replaced are the product of the forward pass, which bitsandbytes implements for CUDA in
Python with kernels that need values, and Params4bit, a class that fake tensors cannot have.
"""
import contextlib
from unittest import mock

import torch

import int8

LOADED = {"autocast": torch.bfloat16, "bf16": torch.bfloat16, "fp32": torch.float32}


def config_of(c):
    import transformers

    if int8.is_int8(c):
        return transformers.BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=int8.THRESHOLD)
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=c.quantized["type"], bnb_4bit_use_double_quant=c.quantized["double"],
        bnb_4bit_compute_dtype=LOADED[c.precision],
        bnb_4bit_quant_storage=LOADED[c.precision] if c.fsdp and not c.quantized.get("whole") else torch.uint8)  # units of FSDP have one type


def parameter(data, requires_grad=False, **settings):
    """Params4bit as a parameter of the usual class."""
    made = torch.nn.Parameter(data, requires_grad=False)
    for key, value in settings.items():
        setattr(made, key, value)
    return made


def replaced(model, c):
    """The model with Linear4bit as from_pretrained() makes it: Bnb4BitHfQuantizer and Bnb4bitQuantize of transformers."""
    import bitsandbytes
    from transformers.integrations import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert

    functional = bitsandbytes.functional
    if c.quantized.get("double"):
        functional.name2qmap["dynamic"] = torch.empty(256)  # on the device, one for all weights
    linear = {name: (m.weight, m.bias) for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    with mock.patch.object(bitsandbytes.nn.modules, "Params4bit", parameter), \
            mock.patch.object(bitsandbytes.nn.modules, "Int8Params", int8.parameter):
        model = replace_with_bnb_linear(model, get_keys_to_not_convert(model), config_of(c))
    for name, module in model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear8bitLt):
            weight, module.bias = linear[name]
            int8.quantize(module, weight)
        if not isinstance(module, bitsandbytes.nn.Linear4bit):
            continue
        weight, module.bias = linear[name]
        settings = {key: getattr(module.weight, key) for key in ("compress_statistics", "quant_type", "quant_storage")}
        packed, module.quant_state = functional.quantize_4bit(weight.detach(), **settings)
        module.weight = parameter(packed, **settings, quant_state=module.quant_state, bnb_quantized=True)
    setattr(model, "is_loaded_in_8bit" if int8.is_int8(c) else "is_loaded_in_4bit", True)
    return model


def prepared(model, c):
    import peft

    for p in model.parameters():
        p.requires_grad = False
    if c.quantized["prepared"]:
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        for module in model.modules():
            if getattr(module, "quant_state", None) is not None and module.bias is not None:
                module.bias.data = module.bias.data.to(LOADED[c.precision])  # as Linear4bit does in its first call
    if c.quantized["prepared"] == "axolotl":  # ModelLoader._convert_embedding_modules_dtype()
        for name, module in model.named_modules():
            if "norm" in name or "embed_tokens" in name or "lm_head" in name:
                for p in module.parameters():
                    p.data = p.data.to(torch.bfloat16)
    if c.quantized["prepared"] == "trl":  # embedding and head have the type of the computation again, norms stay f32
        for module in (model.get_input_embeddings(), model.get_output_embeddings()):
            module.weight.data = module.weight.data.to(torch.bfloat16)
    return model


def tensors_of(model, c) -> list:
    """What belongs to the weights, but is no parameter."""
    import bitsandbytes

    if int8.is_int8(c):
        return int8.tensors_of(model)
    found = [bitsandbytes.functional.name2qmap["dynamic"]] if c.quantized["double"] else []
    for module in model.modules():
        state = module.quant_state if isinstance(module, bitsandbytes.nn.Linear4bit) else None
        if state is not None:
            found += [state.absmax, state.code]
            if state.nested:
                found += [state.offset, state.state2.absmax, state.state2.code]
    return found


def gemm_4bit(a, b, shape, absmax, blocksize, quant_type, bias=None, absmax_8bit=None, absmax_code=None, absmax_offset=None):
    """_dequant_linear_fallback() of bitsandbytes for CUDA, which products of more than 1,536 rows always take."""
    if absmax_8bit is not None:
        absmax_dq = torch.empty_like(absmax_8bit, dtype=torch.float32)
        absmax = absmax_dq + absmax_offset
    b_dq = torch.empty(shape, dtype=a.dtype, device=a.device)
    return torch.nn.functional.linear(a, b_dq, bias)


def adamw_8bit(trained, model):
    """AdamW8bit of bitsandbytes; embeddings have moments in 32 bits, as the Trainer sets them. Its tables of values are in host memory, here the device meta, until its first step."""
    import bitsandbytes

    manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
    manager.initialize()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    with mock.patch.object(bitsandbytes.functional, "create_dynamic_map", lambda signed: torch.empty(256, device="meta")):
        return bitsandbytes.optim.AdamW8bit(trained, lr=1e-3)


def keep_state(module):
    """fix_4bit_weight_quant_state_from_module(): a weight that FSDP has made has no state, but its module has it."""
    if getattr(module.weight, "quant_state", None) is None:
        module.weight.quant_state = module.quant_state


class Delegate:
    """An object with some other attributes."""

    def __init__(self, of, **replaced):
        self.__dict__.update(replaced, _of=of)

    def __getattr__(self, name):
        return getattr(self._of, name)


@contextlib.contextmanager
def as_on_cuda(c):
    """The product of bitsandbytes for CUDA. peft asks for the autocast of CUDA."""
    if not c.quantized:
        yield
        return
    asked = torch.is_autocast_enabled
    with mock.patch.object(torch, "is_autocast_enabled", lambda device="cpu": asked(device)):
        with int8.as_on_cuda(c, Delegate) if int8.is_int8(c) else products_of_4_bits():
            yield


@contextlib.contextmanager
def products_of_4_bits():
    from bitsandbytes.autograd import _functions

    operators = torch.ops.bitsandbytes
    ops = Delegate(torch.ops, bitsandbytes=Delegate(operators, gemm_4bit=Delegate(operators.gemm_4bit, default=gemm_4bit)))
    from bitsandbytes.nn import modules

    with mock.patch.object(_functions, "torch", Delegate(torch, ops=ops)), \
            mock.patch.object(modules, "fix_4bit_weight_quant_state_from_module", keep_state), \
            mock.patch.object(modules.Linear4bit, "_save_to_state_dict", torch.nn.Linear._save_to_state_dict):
        yield
