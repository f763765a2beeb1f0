"""The Llama of torchtitan 0.2 with its activation checkpointing, its units of FSDP2 and its loss.

The modules are those of the installed package.
"""
import types

import packages

USED = ("torchtitan.models.attention", "torchtitan.models.llama3.model.args", "torchtitan.models.llama3.model.model",
        "torchtitan.models.llama3.infra.parallelize", "torchtitan.distributed.activation_checkpoint",
        "torchtitan.components.loss")


def modules():
    """(args, model, parallelize, loss) of torchtitan."""
    found = packages.modules("torchtitan", USED, "pip install --no-deps torchtitan==0.2.0")
    return tuple(found[i] for i in (1, 2, 3, 5))


class Trained:
    """The model of a case, called like a model of transformers. Its labels are a tensor of their own, and the logits are
    freed when the loss exists, as in the trainer of torchtitan."""

    def __init__(self, model, loss):
        self.model, self._loss, self.labels = model, loss, None

    def __call__(self, input_ids, labels):
        predicted = self.model(input_ids)
        loss = self._loss(predicted, self.labels)
        del predicted
        return types.SimpleNamespace(loss=loss)


def build(c, mesh):
    import fsdp

    args, model, parallelize, loss = modules()
    m = model.Transformer(args.TransformerModelArgs(
        dim=c.hidden, n_layers=c.layers, n_heads=c.heads, n_kv_heads=c.kv_heads, vocab_size=c.vocab, multiple_of=64,
        max_seq_len=c.sequence))
    if c.fsdp["recompute"] != "none":
        checkpointing = types.SimpleNamespace(mode=c.fsdp["recompute"], selective_ac_option="op", early_stop=False,
                                              per_op_sac_force_recompute_mm_shapes_by_fqns=[])
        parallelize.apply_ac(m, checkpointing, op_sac_save_list=parallelize._op_sac_save_list)
    parallelize.apply_fsdp(m, mesh, param_dtype=fsdp.TYPES[c.fsdp["param"]], reduce_dtype=fsdp.TYPES[c.fsdp["reduce"]],
                           pp_enabled=False, reshard_after_forward_policy="default" if c.fsdp["reshard"] else "never")
    return Trained(m.train(), loss.cross_entropy_loss)
