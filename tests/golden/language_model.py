"""Losses of the language model, as Lightning Fabric (or plain PyTorch, where Lightning is not installed) computes them: one hexadecimal
number per line. The C program examples/language_model must print the same bits.

    language_model.py --data FILE [--steps 100] [--threads 1] [--no-fabric]
"""
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class Corpus(torch.utils.data.Dataset):
    def __init__(self, path, block=35):
        self.block = block
        self.words = {}
        ids = []
        with open(path, encoding="utf8") as f:
            for line in f:
                for word in line.split() + ["<eos>"]:
                    ids.append(self.words.setdefault(word, len(self.words)))
        self.data = torch.tensor(ids, dtype=torch.int64)

    def __len__(self):
        return len(self.data) // self.block - 1

    def __getitem__(self, index):
        start, end = index * self.block, (index + 1) * self.block
        return self.data[start:end], self.data[start + 1 : end + 1]


class Transformer(nn.Module):
    def __init__(self, vocabulary, width=200):
        super().__init__()
        self.width, self.vocabulary = width, vocabulary
        self.dropout = nn.Dropout(0.2)
        self.embedding = nn.Embedding(vocabulary, width)
        self.transformer = nn.Transformer(
            d_model=width, nhead=2, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=200, dropout=0.2, batch_first=True
        )
        self.decoder = nn.Linear(width, vocabulary)
        self.positions = self.mask = None

    def make_positions(self, length=5000):
        table = torch.zeros(length, self.width)
        position = torch.arange(0, length, dtype=torch.float).unsqueeze(1)
        step = torch.exp(torch.arange(0, self.width, 2).float() * (-math.log(10000.0) / self.width))
        table[:, 0::2] = torch.sin(position * step)
        table[:, 1::2] = torch.cos(position * step)
        return table.unsqueeze(0)

    def embed(self, words):
        x = self.embedding(words) * math.sqrt(self.width)
        return self.dropout(x + self.positions[:, : words.size(1)])

    def forward(self, words, target):
        if self.positions is None:
            self.positions = self.make_positions()
            self.mask = nn.Transformer.generate_square_subsequent_mask(words.size(1))
        source = self.embed(words)
        x = self.transformer(source, self.embed(target), tgt_mask=self.mask)
        return F.log_softmax(self.decoder(x), dim=-1).view(-1, self.vocabulary)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-fabric", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    fabric = None
    if not args.no_fabric:
        try:
            from lightning_fabric import Fabric

            fabric = Fabric(accelerator="cpu", devices=1)
        except ImportError:
            pass
    if fabric is not None:
        fabric.seed_everything(42, verbose=False)
    else:
        torch.manual_seed(42)

    corpus = Corpus(args.data)
    n = len(corpus)
    held = 2000 if n > 4000 else n // 4
    parts = torch.utils.data.random_split(corpus, [n - 2 * held, held, held], generator=torch.Generator().manual_seed(42))
    loader = torch.utils.data.DataLoader(parts[0], batch_size=20, shuffle=True)
    model = Transformer(len(corpus.words))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if fabric is not None:
        model, optimizer = fabric.setup(model, optimizer)
        loader = fabric.setup_dataloaders(loader)
    model.train()
    for step, (words, target) in enumerate(loader, 1):
        loss = F.nll_loss(model(words, target), target.view(-1))
        if fabric is not None:
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, clip_val=0.25)
        else:
            loss.backward()
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex())
        if step == args.steps:
            break


main()
