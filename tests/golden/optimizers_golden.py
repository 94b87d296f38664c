"""20 steps of every optimizer with PyTorch's own classes, against optimizers_golden.c: weights bit for bit, state dicts in form."""
import zlib

import torch
from golden import VERSION, compare, program_lines
from torch import optim

STEPS = 20
NEWER = VERSION >= (2, 6)
CASES = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd_default": lambda p: optim.SGD(p, lr=1e-3),
    "sgd_decay": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.01),
    "sgd_momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd_dampening": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "sgd_nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "adam": lambda p: optim.Adam(p),
    "adam_betas": lambda p: optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    "adam_amsgrad": lambda p: optim.Adam(p, amsgrad=True, maximize=True),
    "adamw": lambda p: optim.AdamW(p),
    "adamw_amsgrad": lambda p: optim.AdamW(p, lr=0.02, weight_decay=0.3, amsgrad=True),
    "adadelta": lambda p: optim.Adadelta(p),
    "adadelta_options": lambda p: optim.Adadelta(p, lr=0.7, rho=0.8, eps=1e-5, weight_decay=0.1, maximize=True),
    "adagrad": lambda p: optim.Adagrad(p),
    "adagrad_options": lambda p: optim.Adagrad(
        p, lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, maximize=True
    ),
    "rmsprop": lambda p: optim.RMSprop(p),
    "rmsprop_centered": lambda p: optim.RMSprop(p, centered=True),
    "rmsprop_options": lambda p: optim.RMSprop(
        p, alpha=0.9, momentum=0.9, centered=True, weight_decay=0.1, maximize=True
    ),
}
NEWER_CASES = {
    "adam_decoupled": lambda p: optim.Adam(p, weight_decay=0.1, decoupled_weight_decay=True),
    "sgd_foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, foreach=True),
    "adam_foreach": lambda p: optim.Adam(p, amsgrad=True, weight_decay=0.1, foreach=True),
    "adamw_foreach": lambda p: optim.AdamW(p, maximize=True, foreach=True),
    "adadelta_foreach": lambda p: optim.Adadelta(p, weight_decay=0.1, foreach=True),
    "adagrad_foreach": lambda p: optim.Adagrad(p, lr_decay=0.1, foreach=True),
    "rmsprop_foreach": lambda p: optim.RMSprop(p, centered=True, momentum=0.9, foreach=True),
    "sgd_fused": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True, fused=True),
    "sgd_fused_plain": lambda p: optim.SGD(p, lr=0.1, fused=True),
    "adam_fused": lambda p: optim.Adam(p, amsgrad=True, weight_decay=0.1, fused=True),
    "adamw_fused": lambda p: optim.AdamW(p, maximize=True, fused=True),
    "adagrad_fused": lambda p: optim.Adagrad(p, lr_decay=0.1, weight_decay=0.1, fused=True),
}
GROUPED = {
    "sgd_groups": lambda p: optim.SGD(
        [{"params": p[:2]}, {"params": p[2:], "lr": 0.01, "weight_decay": 0.1}], lr=0.1, momentum=0.9
    ),
    "adam_groups": lambda p: optim.Adam(
        [{"params": p[:2]}, {"params": p[2:], "betas": (0.5, 0.9), "amsgrad": True}], lr=0.01, weight_decay=0.1
    ),
}
LBFGS = {
    "lbfgs": lambda p: optim.LBFGS(p, lr=0.1, max_iter=4),
    "lbfgs_default": lambda p: optim.LBFGS(p),
    "lbfgs_history": lambda p: optim.LBFGS(p, lr=0.5, max_iter=5, history_size=3),
    "lbfgs_wolfe": lambda p: optim.LBFGS(p, max_iter=6, line_search_fn="strong_wolfe"),
}
expected = {}


def note_weights(label, step, params):
    parts = []
    for p in params:
        data = bytes(p.detach().contiguous().view(torch.uint8).flatten().tolist()) if VERSION >= (2, 0) else raw(p)
        parts.append(f"{zlib.crc32(data):08x}:{data[:8].hex()}")
    expected[f"{label}.{step}"] = " ".join(parts)


def raw(p):
    p = p.detach().contiguous()
    if p.dtype == torch.bfloat16:
        return p.view(torch.int16).numpy().tobytes()
    return p.numpy().tobytes()


def form(value):
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]}[{','.join(map(str, value.shape))}]"
    return {float: "float", int: "int", list: "list", bool: "bool", tuple: "tuple", type(None): "None", str: "str"}[type(value)]


def group_form(text):
    """Without what does not matter: an int default may be a float in C, and keys given to a group come first in Python."""
    return " ".join(sorted(text.replace("=int", "=number").replace("=float", "=number").split()))


def note_form(label, optimizer):
    if not NEWER:
        return
    state = optimizer.state_dict()
    for key, entry in state["state"].items():
        if entry:
            expected[f"{label}.state{key}"] = " ".join(f"{k}={form(v)}" for k, v in entry.items())
    for i, group in enumerate(state["param_groups"]):
        expected[f"{label}.group{i}"] = group_form(" ".join(f"{k}={form(v)}" for k, v in group.items()))


def new_params(dtype):
    torch.manual_seed(1)
    return [torch.nn.Parameter(torch.randn(s, dtype=dtype)) for s in ((37,), (12, 7), (3,))]


def run(name, make, dtype):
    label = f"{name}.{str(dtype)[6:]}"
    params = new_params(dtype)
    optimizer = make(params)
    for step in range(STEPS):
        for i, p in enumerate(params):
            if i != 2 or step >= 2 or name == "sgd_fused":  # which cannot begin late
                p.grad = torch.randn(p.shape, dtype=dtype)
        optimizer.step()
        note_weights(label, step, params)
    note_form(label, optimizer)


def run_lbfgs(name, make, dtype):
    label = f"{name}.{str(dtype)[6:]}"
    params = new_params(dtype)
    x, y = torch.randn(16, 7, dtype=dtype), torch.randn(16, dtype=dtype)
    optimizer = make(params)

    def closure():
        optimizer.zero_grad(set_to_none=True)
        hidden = torch.tanh(x.matmul(params[1].t()) + params[0].narrow(0, 0, 12))
        loss = torch.nn.functional.mse_loss(hidden.sum(1) + params[2].sum(), y)
        loss.backward()
        return loss

    for step in range(STEPS):
        optimizer.step(closure)
        note_weights(label, step, params)
    note_form(label, optimizer)


def run_sparse(name, make):
    params = new_params(torch.float32)
    optimizer = make([params[1]])
    for step in range(STEPS):
        index = torch.randint(12, (5,))
        loss = torch.nn.functional.embedding(index, params[1], sparse=True).pow(2).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        note_weights(f"{name}.sparse", step, params)


for case, maker in CASES.items():
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        run(case, maker, kind)
for case, maker in GROUPED.items():
    run(case, maker, torch.float32)
for case in ("sgd_dampening", "adadelta_options", "rmsprop_options", "adagrad"):
    run(case, CASES[case], torch.complex64)
if NEWER:  # 1.13 has no maximum for complex tensors
    run("adam_amsgrad", CASES["adam_amsgrad"], torch.complex64)
if NEWER:
    for case, maker in NEWER_CASES.items():
        for kind in (torch.float32, torch.float64):
            run(case, maker, kind)
for case, maker in LBFGS.items():
    for kind in (torch.float32, torch.float64):
        run_lbfgs(case, maker, kind)
run_sparse("sgd", lambda p: optim.SGD(p, lr=0.1))
run_sparse("sgd_momentum", lambda p: optim.SGD(p, lr=0.1, momentum=0.9))
run_sparse("adagrad", lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.01))

found = program_lines("newer" if NEWER else "older")
for key in list(found):
    if ".state" in key or ".group" in key:
        if NEWER:
            found[key] = group_form(found[key]) if ".group" in key else found[key]
        else:
            del found[key]
compare(expected, found)
