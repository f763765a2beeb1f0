#!/usr/bin/env python3
"""Write tests/core/runfile/lr_schedules.inc: learning rates of transformers' schedules.

Needs torch and transformers:

    tests/interop/lr_schedules.py > tests/core/runfile/lr_schedules.inc
"""
import torch
import transformers
from transformers.optimization import get_scheduler, get_wsd_schedule

LR = 0.002


def learning_rates(make, steps):
    """The learning rate of each of `steps` + 1 steps, from 0."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    schedule = make(optimizer)
    out = []
    for _ in range(steps + 1):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return out


def rows(name, decay, warmup, decay_steps, steps, min_lr, make):
    values = learning_rates(make, steps)
    wanted = sorted({0, warmup // 2, max(warmup - 1, 0), warmup, (warmup + steps) // 2, steps - decay_steps - 1,
                     steps - decay_steps, steps - decay_steps // 2, steps - 1, steps})
    for t in wanted:
        if not 0 <= t <= steps:
            continue
        # In warm-up our step t has the learning rate of their step t + 1.
        print(f'    {{"{name}", "{decay}", {warmup}, {decay_steps}, {steps}, {min_lr!r}, {t}, '
              f'{values[t + 1 if t < warmup else t]!r}}},')


def main():
    print(f"// Written by tests/interop/lr_schedules.py with transformers {transformers.__version__}; lr = {LR}.")
    print("// schedule, decay, warmup_steps, decay_steps, steps, min_lr, step, learning rate")
    for warmup, steps in [(0, 10), (7, 100), (300, 3400), (5, 6)]:
        for name in ["linear", "cosine"]:
            rows(name, "linear", warmup, 0, steps, 0.0,
                 lambda o: get_scheduler(name, o, num_warmup_steps=warmup, num_training_steps=steps))
        rows("constant", "linear", warmup, 0, steps, 0.0,
             lambda o: get_scheduler("constant_with_warmup", o, num_warmup_steps=warmup))
    for decay in ["linear", "cosine", "1-sqrt"]:
        for warmup, decay_steps, steps in [(0, 1, 10), (10, 33, 100), (50, 50, 100)]:
            for min_lr in [0.0, 0.0005]:
                # The warm-up of transformers begins at min_lr, ours at lr / warmup_steps: compared without min_lr only.
                if min_lr and warmup:
                    continue
                rows("wsd", decay, warmup, decay_steps, steps, min_lr,
                     lambda o: get_wsd_schedule(o, num_warmup_steps=warmup, num_decay_steps=decay_steps,
                                                num_training_steps=steps, decay_type=decay, min_lr_ratio=min_lr / LR))


if __name__ == "__main__":
    main()
