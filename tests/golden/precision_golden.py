"""The image classifier's network trained under every precision with Lightning Fabric, and what precision_golden.c makes of the same: losses
and weights bit for bit. One network, random images, 100 steps for bf16-mixed, fewer for the others."""
import logging
import sys
import warnings

try:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins import MixedPrecision
except ImportError:
    print("skipped: this Python has no lightning_fabric")
    sys.exit(77)
import torch
from torch import nn
from golden import VERSION, compare, program_lines

warnings.filterwarnings("ignore")
logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
expected = {}


def bits(value):
    return "%.9g" % value


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(1))


def run(name, steps, precision=None, clip=False, sgd=False, init=False, **options):
    torch.manual_seed(1)
    if precision == "16-mixed":  # asked for as a name, the CPU falls back to bf16-mixed
        scaler = torch.amp.GradScaler("cpu", growth_interval=3, **options)
        fabric = Fabric(accelerator="cpu", devices=1, plugins=MixedPrecision("16-mixed", "cpu", scaler=scaler))
    else:
        fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
    if init:
        with fabric.init_module():
            model = network()
    else:
        model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01) if sgd else torch.optim.Adadelta(model.parameters(), lr=1.0)
    if sgd or not precision or "true" not in precision:
        model, optimizer = fabric.setup(model, optimizer)
    else:
        model = fabric.setup_module(model)
        optimizer = fabric.setup_optimizers(torch.optim.Adadelta(model.parameters(), lr=1.0))
    for step in range(steps):
        images, labels = torch.randn(8, 1, 28, 28), torch.randint(10, (8,))
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(images), labels)
        fabric.backward(loss)
        if clip:
            norm = fabric.clip_gradients(model, optimizer, max_norm=1.0)
            expected[f"{name}.norm.{step}"] = bits(norm.item())
        optimizer.step()
        expected[f"{name}.loss.{step}"] = bits(loss.item())
    for i, p in enumerate(model.parameters()):
        expected[f"{name}.weight.{i}"] = "%s %.17g" % (str(p.dtype)[6:], p.detach().double().sum().item())


run("bf16_mixed", 100, "bf16-mixed")
run("full", 10, "32-true")
run("double", 5, "64-true")
run("double_init", 3, "64-true", init=True)
run("bf16_true", 10, "bf16-true")
run("bf16_init", 3, "bf16-true", init=True)
run("fallback", 3, "bf16-mixed", clip=True)
half = VERSION >= (2, 3)
if half:
    run("half_mixed", 20, "16-mixed", sgd=True)
    run("half_mixed_clip", 5, "16-mixed", clip=True, sgd=True, init_scale=64.0)
    run("half_true", 5, "16-true", sgd=True)
compare(expected, program_lines("half" if half else ""))
