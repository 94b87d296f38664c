"""Losses of the image classifier, as Lightning Fabric (or plain PyTorch, where Lightning is not installed) computes them: one hexadecimal
number per line. The C program examples/image_classifier must print the same bits.

    image_classifier.py [--steps 200] [--epochs 1] [--data FOLDER] [--threads 1] [--precision 32-true] [--no-fabric]
                        [--devices 1 --out FILE --weights FILE]

With several devices rank k writes its losses to FILE (rank 0) or FILE.k; rank 0 writes the trained weights.
"""
import argparse
import gzip
import os
import struct
import sys

import torch
import torch.nn.functional as F
from torch import nn


def read_idx(path):
    with gzip.open(path, "rb") as f:
        data = f.read()
    dims = data[3]
    sizes = struct.unpack(">" + "I" * dims, data[4 : 4 + 4 * dims])
    return torch.frombuffer(bytearray(data[4 + 4 * dims :]), dtype=torch.uint8).reshape(sizes)


class Images(torch.utils.data.Dataset):
    """torchvision's MNIST with ToTensor and Normalize, without torchvision."""

    def __init__(self, folder, part):
        self.images = read_idx(os.path.join(folder, f"{part}-images-idx3-ubyte.gz"))
        self.labels = read_idx(os.path.join(folder, f"{part}-labels-idx1-ubyte.gz"))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].unsqueeze(0).to(torch.float32).div(255)
        return image.sub_(torch.tensor(0.1307)).div_(torch.tensor(0.3081)), int(self.labels[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = self.dropout2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


def forward(model, data, autocast):
    """What Fabric does around a forward with bf16-mixed, for Pythons without Lightning."""
    if not autocast:
        return model(data)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(data.to(torch.bfloat16)).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default=None)
    parser.add_argument("--no-fabric", action="store_true")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--accelerator", default="cpu")
    parser.add_argument("--out")
    parser.add_argument("--weights")
    args = parser.parse_args()
    fabric = None
    if not args.no_fabric:
        try:
            from lightning_fabric import Fabric

            fabric = Fabric(accelerator=args.accelerator, devices=args.devices, strategy=args.strategy, precision=args.precision)
            fabric.launch()
        except ImportError:
            pass
    torch.set_num_threads(args.threads)
    if fabric is None and args.devices > 1:
        sys.exit(77)
    rank = fabric.global_rank if fabric is not None else 0
    out = open(args.out + (f".{rank}" if rank > 0 else ""), "w") if args.out else sys.stdout
    autocast = fabric is None and args.precision == "bf16-mixed"
    if fabric is not None:
        fabric.seed_everything(1, verbose=False)
    else:
        torch.manual_seed(1)

    loader = torch.utils.data.DataLoader(Images(args.data, "train"), batch_size=64, shuffle=True)
    test_loader = torch.utils.data.DataLoader(Images(args.data, "t10k"), batch_size=64)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    if fabric is not None:
        model, optimizer = fabric.setup(model, optimizer)
        loader, test_loader = fabric.setup_dataloaders(loader, test_loader)
    for epoch in range(args.epochs):
        model.train()
        for step, (data, target) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = F.nll_loss(forward(model, data, autocast), target)
            fabric.backward(loss) if fabric is not None else loss.backward()
            optimizer.step()
            print(loss.item().hex(), file=out)
            if step == args.steps:
                break
        if epoch + 1 < args.epochs:
            model.eval()
            with torch.no_grad():
                for step, (data, target) in enumerate(test_loader, 1):
                    forward(model, data, autocast)
                    if step == args.steps:
                        break
            scheduler.step()
    if args.weights and rank == 0:
        torch.save(model.state_dict(), args.weights)
    out.flush()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        # PyTorch's communication threads may abort an interpreter that ends while they run; the results are out by now.
        sys.stdout.flush()
        torch.distributed.barrier()
        os._exit(0)


main()
