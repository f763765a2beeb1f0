"""Experts of a case that are modules, as in transformers 4, whose loop asks for the rows that each expert gets.

The number of rows depends on values, so `torch.where(mask)` is replaced: every expert gets an equal share, and the first ones
get one more where they do not divide.
"""
import contextlib
import types
from unittest import mock

import torch


def equal_shares(c):
    """A context in which the loop over the experts of a case finds as many rows for each."""
    if not (c.experts and c.release):
        return contextlib.nullcontext()
    where, greater, rows = torch.where, torch.greater, c.batch * c.sequence * c.experts_per_token

    def shares(condition, *values):
        if values:
            return where(condition, *values)
        # Of the mask [experts, k, tokens], which is a permutation of [tokens, k, experts].
        number = condition.storage_offset()
        return torch.empty(rows // c.experts + (number < rows % c.experts), 2, dtype=torch.long).unbind(1)

    def all_hit(counts, least):
        # expert_hit: the numbers of the experts that get any token.
        if counts.shape != (c.experts,):
            return greater(counts, least)
        return types.SimpleNamespace(nonzero=lambda: range(c.experts))

    patches = contextlib.ExitStack()
    patches.enter_context(mock.patch.object(torch, "where", shares))
    patches.enter_context(mock.patch.object(torch, "greater", all_hit))
    return patches
