"""GradScaler trajectories on scripted overflows: what tests/unit/precision/grad_scaler_test.c prints must be the same text.

Usage: grad_scaler.py [cpu|cuda]. Needs PyTorch 2.3 or later (GradScaler on the CPU)."""
import sys
import torch

INF, NAN = float("inf"), float("nan")
# What the gradient of the two weights is in each step, before scaling. 1e38 overflows once it is scaled.
SCRIPT = [0.5, 0.25, 1e38, 0.5, 0.125, 0.1, 0.3, NAN, INF, 0.7, -0.2, 0.4, 0.6, 0.9, -INF, 0.1, 0.2, 0.3, 0.4, 0.5,
          3e33, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]


def line(step, scaler, *weights):
    state = scaler.state_dict()
    numbers = " ".join("%.9g" % v for w in weights for v in w.tolist())
    print("%d scale %.17g tracker %d weights %s" % (step, state["scale"], state["_growth_tracker"], numbers))


def run(title, device, reload_at=None, two=False, unscale=False, **options):
    print(title)
    scaler = torch.amp.GradScaler(device, **options)
    a = torch.tensor([1.0, -2.0], device=device, requires_grad=True)
    b = torch.tensor([3.0], device=device, requires_grad=True)
    optimizers = [torch.optim.SGD([a], lr=0.1)] + ([torch.optim.SGD([b], lr=0.1)] if two else [])
    for step, g in enumerate(SCRIPT):
        for o in optimizers:
            o.zero_grad()
        factor = torch.tensor([1.0, g], device=device)
        loss = (a * factor).sum() + (b * 0.5).sum() if two else (a * factor).sum()
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizers[0])
        for o in optimizers:
            scaler.step(o)
        scaler.update()
        if step == reload_at:
            state = scaler.state_dict()
            scaler = torch.amp.GradScaler(device, init_scale=1.0, growth_interval=7)
            scaler.load_state_dict(state)
        line(step, scaler, a, *([b] if two else []))


device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
run("defaults", device)
run("short interval", device, growth_interval=3)
run("odd factors", device, init_scale=1000.3, growth_factor=1.7, backoff_factor=0.3, growth_interval=2)
run("largest scale", device, init_scale=2.0**127, growth_interval=2)
run("reloaded", device, growth_interval=3, reload_at=9)
run("two optimizers", device, growth_interval=3, two=True)
run("unscaled first", device, growth_interval=3, unscale=True)
