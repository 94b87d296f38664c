"""Two ranks of Lightning Fabric's ddp (or, where Lightning is not installed, PyTorch's DistributedDataParallel) beside two ranks of
cfabric's: losses of both ranks and final weights, bit for bit. See ddp_golden.c for the variants."""
import os
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
SAMPLES, BATCH = 1600, 8
VARIANTS = [("plain", 100, 1, False, False), ("accumulate", 30, 3, False, True), ("norm", 30, 1, True, True), ("buckets", 30, 1, False, True)]
OPTIONS = {"bucket_cap_mb": 0.01, "gradient_as_bucket_view": True}


def net(norm):
    if norm:
        return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(288, 10))
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(1352, 64), nn.ReLU(),
                         nn.Linear(64, 10))


def digest(tensor):
    value = 14695981039346656037
    for byte in tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist() if tensor.dim() else bytes(tensor.numpy().tobytes()):
        value = ((value ^ byte) * 1099511628211) % (1 << 64)
    return f"{value:016x}"


class Plain:
    """What the test needs of Fabric, on PyTorch alone."""

    def __init__(self, options):
        import contextlib

        self.options, self.nothing = options, contextlib.nullcontext
        self.global_rank = int(os.environ["RANK"])
        torch.distributed.init_process_group("gloo")

    def seed_everything(self, seed, verbose=False):
        import random

        random.seed(seed)
        torch.manual_seed(seed)

    def setup(self, model, optimizer):
        return nn.parallel.DistributedDataParallel(model, **self.options), optimizer

    def setup_dataloaders(self, loader):
        sampler = torch.utils.data.DistributedSampler(loader.dataset, 2, self.global_rank, shuffle=True, seed=1)
        sampler.set_epoch(0)
        return torch.utils.data.DataLoader(loader.dataset, batch_size=BATCH, sampler=sampler)

    def no_backward_sync(self, model, enabled):
        return model.no_sync() if enabled else self.nothing()

    def backward(self, loss):
        loss.backward()

    def all_gather(self, tensor):
        parts = [torch.zeros_like(tensor) for _ in range(2)]
        torch.distributed.all_gather(parts, tensor)
        return torch.stack(parts)


def train(fabric, name, steps, accumulate, norm, adamw):
    fabric.seed_everything(1, verbose=False)
    images = torch.randn(SAMPLES, 1, 28, 28)
    labels = torch.randint(10, (SAMPLES,))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=BATCH, shuffle=True)
    model = net(norm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3) if adamw else torch.optim.Adadelta(model.parameters(), lr=1.0)
    bare = model
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(loader)
    for step, (x, y) in enumerate(loader):
        last = (step + 1) % accumulate == 0
        with fabric.no_backward_sync(model, enabled=not last):
            loss = F.cross_entropy(model(x), y)
            fabric.backward(loss)
        if last:
            optimizer.step()
            optimizer.zero_grad()
        losses = fabric.all_gather(loss.detach())
        if fabric.global_rank == 0:
            print(f"{name}.loss.{step}", *(v.hex() for v in losses.tolist()))
        if step + 1 == steps:
            break
    if fabric.global_rank == 0:
        for key, tensor in [*bare.named_parameters(), *bare.named_buffers()]:
            print(f"{name}.{key} {digest(tensor)}")


def peer(which):
    options = OPTIONS if which == "buckets" else {}
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.strategies import DDPStrategy

        fabric = Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(**options))
        fabric.launch()
    except ImportError:
        if "RANK" not in os.environ:
            base = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), WORLD_SIZE="2")
            ranks = [subprocess.Popen([sys.executable, *sys.argv], env=dict(base, RANK=str(r))) for r in range(2)]
            sys.exit(max(abs(r.wait()) for r in ranks))
        fabric = Plain(options)
    torch.set_num_threads(1)
    for variant in VARIANTS:
        if (variant[0] == "buckets") == (which == "buckets"):
            train(fabric, *variant)
    # PyTorch's communication threads may abort an interpreter that ends while they run; the results are out by now.
    sys.stdout.flush()
    torch.distributed.barrier()
    os._exit(0)


def lines(text):
    result = {}
    for line in text.splitlines():
        key, _, rest = line.partition(" ")
        result[key] = [float.fromhex(v) for v in rest.split()] if ".loss." in key else rest
    return result


def main():
    if len(sys.argv) == 3:
        return peer(sys.argv[2])
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    expected, found = {}, {}
    for which in ("default", "buckets"):
        theirs = subprocess.Popen([sys.executable, sys.argv[0], sys.argv[1], which], stdout=subprocess.PIPE, text=True, env=environment)
        ours = subprocess.run([sys.argv[1], which], stdout=subprocess.PIPE, text=True, env=environment, timeout=250)
        text = theirs.communicate(timeout=250)[0]
        if ours.returncode or theirs.returncode:
            sys.exit(f"exit codes: cfabric {ours.returncode}, Python {theirs.returncode}")
        expected.update(lines(text))
        found.update(lines(ours.stdout))
    wrong = [k for k in expected if expected[k] != found.get(k)] + [k for k in found if k not in expected]
    for key in wrong[:10]:
        print(f"{key}\n  PyTorch {expected.get(key)}\n  cfabric {found.get(key)}")
    print(f"torch {torch.__version__}, 2 ranks: {len(expected)} values compared, {len(wrong)} differ")
    sys.exit(1 if wrong or len(expected) < 190 else 0)


main()
