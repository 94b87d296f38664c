#!/usr/bin/env python3
"""The orders PyTorch's samplers and loaders give, one line "name: values" each. tests/unit/data/golden_test.c makes the same lines
with cfabric and compares them. First line: the version of torch."""
import re
import warnings

import torch
import torch.utils.data as tud
from torch.utils.data.distributed import DistributedSampler

warnings.filterwarnings("ignore")


def say(name, values):
    print(name + ":", *[int(v) for v in values])


def gen(seed):
    return torch.Generator().manual_seed(seed)


def next_random():
    """What the default generator gives next: shows that as much of it was used."""
    return [torch.empty((), dtype=torch.int64).random_().item()]


def passes(name, make, count=1, generator=None):
    torch.manual_seed(5)
    sampler = make()
    for k in range(count):
        say(f"{name}.{k}", list(sampler))
    say(name + ".after", next_random())
    if generator is not None:
        say(name + ".generator", [torch.empty((), dtype=torch.int64).random_(generator=generator).item()])


class Range(tud.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


class Seeds(Range):
    def __getitem__(self, i):
        info = tud.get_worker_info()
        return info.seed if info is not None else -1


class Stream(tud.IterableDataset):
    def __iter__(self):
        info = tud.get_worker_info()
        start, step = (info.id, info.num_workers) if info is not None else (0, 1)
        return iter(range(start, 23, step))


def loader(name, make, count=2, stop=None, generator=None):
    torch.manual_seed(7)
    load = make()
    for k in range(count):
        out = []
        for i, batch in enumerate(load):
            out += [-1] + (batch.tolist() if isinstance(batch, torch.Tensor) and batch.dim() else [int(batch)])
            if stop is not None and i + 1 == stop:
                break
        say(f"{name}.{k}", out)
    say(name + ".after", next_random())
    if generator is not None:
        say(name + ".generator", [torch.empty((), dtype=torch.int64).random_(generator=generator).item()])


def samplers():
    passes("sequential", lambda: tud.SequentialSampler(range(5)))
    passes("random", lambda: tud.RandomSampler(range(10)), 3)
    passes("random_large", lambda: tud.RandomSampler(range(3000)))
    g = gen(3)
    passes("random_generator", lambda: tud.RandomSampler(range(10), generator=g), 3, g)
    g = gen(4)
    passes("random_more", lambda: tud.RandomSampler(range(10), num_samples=25, generator=g), 2, g)
    passes("random_fewer", lambda: tud.RandomSampler(range(10), num_samples=4), 2)
    g = gen(6)
    passes("replacement", lambda: tud.RandomSampler(range(10), replacement=True, num_samples=70, generator=g), 2, g)
    passes("replacement_64", lambda: tud.RandomSampler(range(9), replacement=True, num_samples=64), 2)
    passes("subset", lambda: tud.SubsetRandomSampler([5, 3, 9, 1, 7]), 2)
    g = gen(8)
    passes("subset_generator", lambda: tud.SubsetRandomSampler([5, 3, 9, 1, 7], generator=g), 2, g)
    weights = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6]
    passes("weighted", lambda: tud.WeightedRandomSampler(weights, 12), 2)
    passes("weighted_without", lambda: tud.WeightedRandomSampler(weights, 5, replacement=False), 2)
    for n, world, shuffle, drop in [(8, 2, False, False), (8, 2, True, False), (7, 3, False, False), (7, 3, False, True),
                                    (7, 3, True, True), (1, 4, True, False), (10, 2, True, False), (3, 8, False, True)]:
        for rank in range(world):
            s = DistributedSampler(range(n), world, rank, shuffle=shuffle, seed=1, drop_last=drop)
            for epoch in range(2):
                s.set_epoch(epoch)
                say(f"distributed_{n}_{world}_{int(shuffle)}_{int(drop)}.{rank}.{epoch}", [len(s)] + list(s))


def splits():
    for k, part in enumerate(tud.random_split(range(10), [3, 7], generator=gen(42))):
        say(f"split.{k}", part.indices)
    for k, part in enumerate(tud.random_split(range(31), [0.3, 0.3, 0.4], generator=gen(42))):
        say(f"split_fractions.{k}", part.indices)


def loaders():
    loader("plain", lambda: tud.DataLoader(Range(10), batch_size=4))
    loader("shuffle", lambda: tud.DataLoader(Range(10), batch_size=4, shuffle=True), 3)
    loader("shuffle_drop", lambda: tud.DataLoader(Range(10), batch_size=4, shuffle=True, drop_last=True))
    g = gen(11)
    loader("shuffle_generator", lambda: tud.DataLoader(Range(10), batch_size=5, shuffle=True, generator=g), 3, generator=g)
    loader("break", lambda: tud.DataLoader(Range(10), batch_size=3, shuffle=True), 3, stop=2)
    loader("no_batch", lambda: tud.DataLoader(Range(5), batch_size=None, shuffle=True))
    loader("weighted_loader", lambda: tud.DataLoader(Range(6), batch_size=4,
                                                     sampler=tud.WeightedRandomSampler([1, 2, 3, 1, 1, 2], 10)))
    g = gen(12)
    loader("batch_sampler", lambda: tud.DataLoader(Range(9), batch_sampler=tud.BatchSampler(
        tud.RandomSampler(range(9), generator=g), 2, True)), generator=g)
    loader("workers", lambda: tud.DataLoader(Range(23), batch_size=4, shuffle=True, num_workers=2))
    g = gen(13)
    loader("workers_generator", lambda: tud.DataLoader(Range(23), batch_size=4, shuffle=True, num_workers=2, generator=g),
           generator=g)
    loader("persistent", lambda: tud.DataLoader(Range(23), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True), 3)
    loader("seeds", lambda: tud.DataLoader(Seeds(4), batch_size=1, num_workers=2))
    loader("stream", lambda: tud.DataLoader(Stream(), batch_size=4))
    loader("stream_drop", lambda: tud.DataLoader(Stream(), batch_size=4, drop_last=True))
    loader("stream_workers", lambda: tud.DataLoader(Stream(), batch_size=4, num_workers=2))


def pixels():
    x = torch.arange(256, dtype=torch.uint8)
    unit = x.to(torch.float32).div(255)
    say("unit", unit.view(torch.int32))
    for k, (mean, std) in enumerate([(0.1307, 0.3081), (0.2860, 0.3530), (0.5, 0.5)]):
        m, s = torch.as_tensor([mean], dtype=torch.float32), torch.as_tensor([std], dtype=torch.float32)
        say(f"normalized.{k}", unit.clone().sub_(m).div_(s).view(torch.int32))


def wrapped():
    """Lightning Fabric's wrapper around any other sampler; left out when it is not installed."""
    try:
        from lightning_fabric.utilities.distributed import DistributedSamplerWrapper
    except ImportError:
        return
    for rank in range(2):
        torch.manual_seed(9)
        s = DistributedSamplerWrapper(tud.SubsetRandomSampler([5, 3, 9, 1, 7]), num_replicas=2, rank=rank, shuffle=False, seed=0)
        for k in range(2):
            say(f"wrapped.{rank}.{k}", list(s))


print("torch", re.match(r"[0-9.]+", torch.__version__)[0])
samplers()
splits()
loaders()
pixels()
wrapped()
