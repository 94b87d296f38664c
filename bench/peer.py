"""The benchmark programs in Python, on PyTorch and Lightning Fabric; the same commands and output as bench_cfabric."""
import math
import os
import sys
import time

COMMAND = sys.argv[1]
ARGS = {"batch": "32", "steps": "200", "precision": "32-true", "path": "", "workers": "0", "devices": "1"}
ARGS.update(a.split("=", 1) for a in sys.argv[2:] if "=" in a)
BATCH, STEPS, WORKERS = int(ARGS["batch"]), int(ARGS["steps"]), int(ARGS["workers"])


def loop(step, warmup, steps):
    blocks = 10
    per_block = max(1, steps // blocks)
    for _ in range(warmup):
        step()
    seconds = []
    for _ in range(blocks):
        start = time.perf_counter()
        for _ in range(per_block):
            step()
        seconds.append((time.perf_counter() - start) / per_block)
    seconds.sort()
    print(f"seconds_per_step {(seconds[blocks // 2 - 1] + seconds[blocks // 2]) / 2:.9f}", flush=True)


def memory(key):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key + ":"):
                return 1024 * int(line.split()[1])
    return -1


def fabric():
    from lightning_fabric import Fabric

    devices = int(ARGS["devices"])
    strategy = "ddp" if devices > 1 else "auto"
    result = Fabric(accelerator="cpu", devices=devices, strategy=strategy, precision=ARGS["precision"])
    result.launch()
    return result


def mlp():
    import torch
    from torch import nn

    torch.manual_seed(1)
    fab = fabric()
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model, optimizer = fab.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    x, y = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        fab.backward(loss)
        optimizer.step()

    loop(step, 100, STEPS)


def image_net():
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 32, 3, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(dim=1),
    )  # fmt: skip


def image_step():
    import torch

    torch.manual_seed(1)
    fab = fabric()
    model = image_net()
    model, optimizer = fab.setup(model, torch.optim.Adadelta(model.parameters(), lr=1.0))
    x, y = torch.randn(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.nll_loss(model(x), y)
        fab.backward(loss)
        optimizer.step()

    return step


def image():
    loop(image_step(), 3, STEPS)


def ddp():
    loop(image_step(), 5, STEPS)


def first_step():
    step = image_step()
    step()
    print("first_step 1", flush=True)
    for _ in range(4):
        step()
    print(f"peak_rss {memory('VmHWM')}", flush=True)


def language():
    import torch
    from torch import nn

    vocabulary, width, block = 33278, 200, 35

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.dropout = nn.Dropout(0.2)
            self.transformer = nn.Transformer(width, 2, 2, 2, 200, 0.2, batch_first=True)
            self.decoder = nn.Linear(width, vocabulary)
            angle = torch.arange(block)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
            self.positions = torch.stack([angle.sin(), angle.cos()], -1).view(block, width)
            self.mask = nn.Transformer.generate_square_subsequent_mask(block)

        def embed(self, tokens):
            return self.dropout(self.embedding(tokens) * math.sqrt(width) + self.positions)

        def forward(self, x, y):
            out = self.transformer(self.embed(x), self.embed(y), tgt_mask=self.mask)
            return torch.log_softmax(self.decoder(out), -1).view(-1, vocabulary)

    torch.manual_seed(1)
    fab = fabric()
    model = Transformer()
    model, optimizer = fab.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = torch.randint(vocabulary, (20, block)), torch.randint(vocabulary, (20, block))

    def step():
        optimizer.zero_grad()
        fab.backward(nn.functional.nll_loss(model(x, y), y.view(-1)))
        fab.clip_gradients(model, optimizer, clip_val=0.25)
        optimizer.step()

    loop(step, 1, STEPS)


def loader():
    import gzip

    import numpy
    import torch
    from torch.utils.data import DataLoader, Dataset

    def idx(name, header):
        with gzip.open(os.path.join(ARGS["path"], name)) as file:
            return numpy.frombuffer(file.read(), dtype=numpy.uint8, offset=header)

    class FashionMnist(Dataset):
        """What torchvision's dataset with ToTensor and Normalize does for each sample."""

        def __init__(self):
            self.images = idx("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
            self.labels = idx("train-labels-idx1-ubyte.gz", 8)
            self.mean, self.std = torch.tensor([0.1307]).view(-1, 1, 1), torch.tensor([0.3081]).view(-1, 1, 1)

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, i):
            image = torch.from_numpy(self.images[i].copy())[None].to(torch.float32).div(255)
            return image.sub_(self.mean).div_(self.std), int(self.labels[i])

    batches = DataLoader(FashionMnist(), batch_size=BATCH, shuffle=True, num_workers=WORKERS)
    start, samples = time.perf_counter(), 0
    for _ in range(STEPS):
        for _, y in batches:
            samples += len(y)
    print(f"samples_per_second {samples / (time.perf_counter() - start):.3f}")


def peak_memory():
    import torch
    from torch import nn

    width = 512
    model = nn.Sequential(*[m for _ in range(20) for m in (nn.Linear(width, width), nn.ReLU())])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = 0
    for i in range(4):
        if i == 1:
            before = memory("VmRSS")
        x = torch.randn(2 if i == 0 else BATCH, width)
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    print(f"peak_bytes {memory('VmHWM') - before}")


def all_reduce():
    """Plain Gloo, without anything around it."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    gradient, best = torch.ones(25 * 1000 * 1000), 1e9
    for i in range(STEPS):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(gradient)
        if i > 0:
            best = min(best, time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(f"seconds {best:.6f}")
    dist.destroy_process_group()


def big_state():
    import torch

    return {"model": {f"layer{i}": torch.full((16 * 1024 * 1024,), float(i)) for i in range(16)}}


def save():
    import torch

    for _ in range(STEPS):
        state = big_state()
        start = time.perf_counter()
        torch.save(state, ARGS["path"])
        print(f"seconds {time.perf_counter() - start:.6f}")
        del state


def load():
    import torch

    for _ in range(STEPS):
        start = time.perf_counter()
        state = torch.load(ARGS["path"], weights_only=True)
        print(f"seconds {time.perf_counter() - start:.6f}")
        del state


if __name__ == "__main__":
    globals()[COMMAND]()
