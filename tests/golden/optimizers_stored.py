"""Writes tests/unit/optim/stored_values.h: ten steps of every optimizer on three numbers, for machines without Python."""
import math

import torch
from torch import optim

CASES = [
    ("sgd", lambda p: optim.SGD(p, lr=0.1)),
    ("sgd_nesterov", lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)),
    ("adam", lambda p: optim.Adam(p, lr=0.1)),
    ("adam_amsgrad", lambda p: optim.Adam(p, lr=0.1, weight_decay=0.1, amsgrad=True)),
    ("adamw", lambda p: optim.AdamW(p, lr=0.1)),
    ("adadelta", lambda p: optim.Adadelta(p)),
    ("adagrad", lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1)),
    ("rmsprop", lambda p: optim.RMSprop(p, momentum=0.9, centered=True)),
]
print("/* unit/optim/stored_values.h: written by tests/golden/optimizers_stored.py with PyTorch " + torch.__version__.split("+")[0] + ". */")
print("static const struct { const char *name; double values[3]; } stored[] = {")
for name, make in CASES:
    p = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64))
    optimizer = make([p])
    for t in range(10):
        p.grad = p.detach() * 0.3 + torch.tensor([math.cos(t + i) for i in range(3)], dtype=torch.float64)
        optimizer.step()
    print(f'    {{"{name}", {{' + ", ".join(f"{v:.17g}" for v in p.tolist()) + "}},")
print("};")
