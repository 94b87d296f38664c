"""The rates of every scheduler over 50 steps, with PyTorch's own schedulers, against schedulers_golden.c."""
import math
import struct
import warnings

import torch
from golden import VERSION, compare, program_lines
from torch.optim import lr_scheduler as s

warnings.simplefilter("ignore")


def bits(value):
    return struct.pack(">d", value).hex()


def metric(i):
    return 1.0 / (1 + i) if i < 6 else 0.2 - 1e-6 * i if i < 30 else 0.1 - 1e-3 * i


CASES = {
    "lambda": lambda o: s.LambdaLR(o, lambda e: 0.95**e),
    "multiplicative": lambda o: s.MultiplicativeLR(o, lambda e: 0.97 if e % 2 == 0 else 0.99),
    "step": lambda o: s.StepLR(o, 7),
    "step_gamma": lambda o: s.StepLR(o, step_size=1, gamma=0.7),
    "multi_step": lambda o: s.MultiStepLR(o, [3, 10, 10, 30], gamma=0.3),
    "constant": lambda o: s.ConstantLR(o),
    "constant_long": lambda o: s.ConstantLR(o, factor=0.7, total_iters=20),
    "linear": lambda o: s.LinearLR(o),
    "linear_down": lambda o: s.LinearLR(o, start_factor=0.9, end_factor=0.1, total_iters=33),
    "exponential": lambda o: s.ExponentialLR(o, 0.93),
    "polynomial": lambda o: s.PolynomialLR(o, 40, power=1.7),
    "cosine": lambda o: s.CosineAnnealingLR(o, 10),
    "cosine_min": lambda o: s.CosineAnnealingLR(o, 17, eta_min=0.003),
    "restarts": lambda o: s.CosineAnnealingWarmRestarts(o, 10),
    "restarts_longer": lambda o: s.CosineAnnealingWarmRestarts(o, 4, T_mult=2, eta_min=0.001),
    "one_cycle": lambda o: s.OneCycleLR(o, 1.0, total_steps=60),
    "one_cycle_three": lambda o: s.OneCycleLR(
        o, 0.7, epochs=6, steps_per_epoch=10, three_phase=True, anneal_strategy="linear"
    ),
    "one_cycle_rate_only": lambda o: s.OneCycleLR(o, 0.7, total_steps=55, pct_start=0.45, cycle_momentum=False),
    "cyclic": lambda o: s.CyclicLR(o, 0.01, 0.9, step_size_up=6),
    "cyclic2": lambda o: s.CyclicLR(o, 0.01, 0.9, step_size_up=5, step_size_down=9, mode="triangular2"),
    "cyclic_exp": lambda o: s.CyclicLR(
        o, 0.01, 0.9, step_size_up=5, mode="exp_range", gamma=0.98, cycle_momentum=False
    ),
    "cyclic_own": lambda o: s.CyclicLR(
        o, 0.01, 0.9, step_size_up=5, scale_fn=lambda x: 0.5 * (1 + math.sin(x * math.pi / 2.0)), scale_mode="iterations"
    ),
    "plateau": lambda o: s.ReduceLROnPlateau(o, patience=3, factor=0.4, cooldown=2, min_lr=0.0005),
    "plateau_max": lambda o: s.ReduceLROnPlateau(
        o, mode="max", patience=2, factor=0.5, threshold=0.05, threshold_mode="abs"
    ),
    "sequential": lambda o: s.SequentialLR(
        o,
        [s.ConstantLR(o, factor=0.1, total_iters=20), s.ExponentialLR(o, 0.9), s.StepLR(o, 3, gamma=0.5)],
        [8, 24],
    ),
    "sequential_warmup": lambda o: s.SequentialLR(
        o, [s.LinearLR(o, start_factor=0.01, total_iters=10), s.CosineAnnealingLR(o, 30)], [10]
    ),
    "chained": lambda o: s.ChainedScheduler([s.ConstantLR(o, factor=0.1, total_iters=15), s.ExponentialLR(o, 0.9)]),
}
ADAM = {"one_cycle_three", "cyclic2"}
KINDS = {int: "int", float: "float", bool: "bool", str: "str", list: "list", type(None): "None", tuple: "tuple"}


def kind(value):
    return "dict" if isinstance(value, dict) else KINDS.get(type(value), "other")


def keys(state):
    """Which keys of what kind; the order is Python's business, and an int default may be a float in C."""
    return sorted(f"{k}={kind(v)}".replace("=int", "=number").replace("=float", "=number") for k, v in state.items())


if VERSION < (2, 2):  # where CyclicLR cannot move Adam's betas
    del CASES["cyclic2"]
expected, state_keys = {}, {}
for name, make in CASES.items():
    a, b = (torch.nn.Parameter(torch.ones(n)) for n in (2, 3))
    groups = [{"params": [a]}, {"params": [b], "lr": 0.03}]
    if name in ADAM:
        optimizer = torch.optim.Adam(groups, lr=0.1)
    else:
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    for i in range(50):
        parts = []
        for group in optimizer.param_groups:
            parts += [bits(group["lr"]), bits(group["betas"][0] if name in ADAM else group["momentum"])]
        last = scheduler._last_lr if hasattr(scheduler, "_last_lr") else [group["lr"] for group in optimizer.param_groups]
        expected[f"{name}.{i}"] = " ".join(parts + [bits(last[0])])
        optimizer.step()
        if name.startswith("plateau"):
            scheduler.step(metric(i))
        else:
            scheduler.step()
    state_keys[name] = keys(scheduler.state_dict())

found = {key: line for key, line in program_lines().items() if key.split(".")[0] in CASES}
for name in CASES:
    line = found.pop(f"{name}.keys", "")
    if VERSION >= (2, 10):
        expected[f"{name}.keys"] = " ".join(state_keys[name])
        found[f"{name}.keys"] = " ".join(
            sorted(k.replace("=int", "=number").replace("=float", "=number") for k in line.split())
        )
compare(expected, found)
