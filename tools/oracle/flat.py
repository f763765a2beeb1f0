"""FSDP1 (FullyShardedDataParallel, flat parameters) of a case, as accelerate prepares it for the Trainer of transformers.

A case with `fsdp` and its key "flat" holds there {"orig": use_orig_params, "backward": backward_prefetch ("", "pre" or
"post"), "forward": forward_prefetch}. `param` is the type of mixed precision or "", `reshard` FULL_SHARD or SHARD_GRAD_OP.
Storages of flat parameters are resized; fake ones too, so FSDP1 runs as it is but for comparisons of addresses.
"""
import contextlib
import types
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._tools.mem_tracker import _MemRefType
from torch.distributed.fsdp import FullyShardedDataParallel, _flat_param
from torch.distributed.fsdp._flat_param import FlatParamHandle


def is_flat(c) -> bool:
    return bool(c.fsdp) and "flat" in c.fsdp


def plugin_of(c):
    import torch._dynamo.config  # accelerate sets one of its options
    from accelerate.utils import FullyShardedDataParallelPlugin

    mixed = c.fsdp["param"]
    return FullyShardedDataParallelPlugin(
        fsdp_version=1, sharding_strategy="FULL_SHARD" if c.fsdp["reshard"] else "SHARD_GRAD_OP",
        mixed_precision_policy=mixed or None, auto_wrap_policy="transformer_based_wrap", sync_module_states=False,
        backward_prefetch={"": "NO_PREFETCH", "pre": "BACKWARD_PRE", "post": "BACKWARD_POST"}[c.fsdp["flat"]["backward"]],
        forward_prefetch=c.fsdp["flat"]["forward"], use_orig_params=c.fsdp["flat"]["orig"], cpu_ram_efficient_loading=False)


def reference(model, c):
    """A second model, by prepare_fsdp() of TRL."""
    plugin = plugin_of(c)
    plugin.set_auto_wrap_policy(model)
    with replaced():
        return FullyShardedDataParallel(
            model, sharding_strategy=plugin.sharding_strategy, auto_wrap_policy=plugin.auto_wrap_policy,
            mixed_precision=plugin.mixed_precision_policy, backward_prefetch=plugin.backward_prefetch,
            forward_prefetch=plugin.forward_prefetch, use_orig_params=plugin.use_orig_params, device_id=torch.device("cpu")).eval()


def prepared(model, c):
    """The model in units of flat parameters, by Accelerator.prepare_model()."""
    from accelerate import Accelerator
    from accelerate.utils import DistributedType, DynamoBackend

    mixed, plugin = c.fsdp["param"], plugin_of(c)
    if c.lora:
        # update_fsdp_plugin_peft() of transformers: each matrix of an adapter is a unit of its own.
        from peft.utils.other import fsdp_auto_wrap_policy
        plugin.auto_wrap_policy = fsdp_auto_wrap_policy(model)
    accelerator = types.SimpleNamespace(
        state=types.SimpleNamespace(fsdp_plugin=plugin, dynamo_plugin=types.SimpleNamespace(backend=DynamoBackend.NO)),
        distributed_type=DistributedType.FSDP, is_fsdp2=False, multi_device=False, parallelism_config=None, _models=[],
        native_amp=bool(mixed), mixed_precision=mixed or "no", fp8_backend=None, delayed_fp8_autocast=False,
        autocast_handler=None, device=torch.device("cpu"), device_placement=False, is_main_process=False,
        verify_device_map=lambda model: False)
    from accelerate.utils import modeling
    autocast = lambda *unused: torch.autocast("cpu", dtype=torch.bfloat16)
    with (mock.patch("accelerate.accelerator.get_mixed_precision_context_manager", autocast), replaced()):
        return Accelerator.prepare_model(accelerator, model)


def before_micro_batch(model, last: bool):
    """What no_sync() sets."""
    for unit in FullyShardedDataParallel.fsdp_modules(model):
        unit._sync_gradients = last


@contextlib.contextmanager
def replaced():
    """Comparisons of addresses, which fake tensors do not have."""
    def address(tensor):
        return tensor.untyped_storage()._cdata

    with (mock.patch.object(FakeTensor, "data_ptr", address),
          mock.patch.object(_flat_param, "_same_storage", lambda a, b: address(a) == address(b)),
          mock.patch.object(_flat_param, "_data_ptr_allocated", lambda tensor: tensor.untyped_storage().size() > 0)):
        yield


@contextlib.contextmanager
def counted(notes, tracker):
    """Tells `saved.Saved` and the tracker the storages of unsharded parameters, which are parameters too."""
    prepare = FlatParamHandle.init_flat_param_attributes

    def init(self):
        prepare(self)
        for name in ("_mp_shard", "_full_param_padded"):
            if (tensor := getattr(self.flat_param, name, None)) is not None:
                notes.add_parameter(tensor)
                tracker._update_and_maybe_create_winfos(tensor, _MemRefType.PARAM, update_existing=True)

    with replaced(), mock.patch.object(FlatParamHandle, "init_flat_param_attributes", init):
        yield
