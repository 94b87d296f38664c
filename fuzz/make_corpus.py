"""Writes the first inputs of each fuzz target: make_corpus.py fuzz/corpus. Needs torch; what is kept is in the repository."""
import gzip, io, os, pickle, struct, sys, warnings, zipfile
import torch

warnings.filterwarnings("ignore")
root = sys.argv[1]


def put(target, name, data):
    folder = os.path.join(root, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def saved(value, **kw):
    buffer = io.BytesIO()
    torch.save(value, buffer, **kw)
    return buffer.getvalue()


base = torch.arange(6.0).reshape(2, 3)
values = {"w": base, "t": base.t(), "p": torch.nn.Parameter(torch.ones(2)), "b": b"\xff", "n": None, "l": [1, 2.5, (True,)], "s": torch.Size([2]),
          "d": torch.float16, 3: {1}, "u": torch.zeros(2, dtype=torch.uint16), "big": 2**70}
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
for name, value in {"tensor": base, "values": values, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "empty": []}.items():
    data = saved(value)
    put("torch_file", name + "_zip", data)
    put("torch_file", name + "_legacy", saved(value, _use_new_zipfile_serialization=False))
    put("pickle", name, zipfile.ZipFile(io.BytesIO(data)).read("archive/data.pkl"))
for protocol in (2, 3, 4, 5):
    put("pickle", "plain%d" % protocol, pickle.dumps({"a": [1, -1, 2**40, 1e9, "x" * 300, b"y", None, True, {2}, frozenset([3]), bytearray(b"z")]}, protocol))

put("torch_file", "html", b"<!DOCTYPE html><html></html>")
put("torch_file", "lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")

header = (b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},'
          b'"c":{"dtype":"I64","shape":[0],"data_offsets":[26,26]}}')
put("safetensors", "three", struct.pack("<Q", len(header)) + header + bytes(26))
put("safetensors", "none", struct.pack("<Q", 8) + b"{}      ")
put("json", "three", header.replace(b"[26,26]", b"[26,64]").replace(b"I64\",\"shape\":[0]", b"U8\",\"shape\":[38]"))
put("json", "odd", b'{"a\\u00e9\\n":{"dtype":"F8_E5M2","shape":[1,64],"data_offsets":[0,64],"x":[1e3,-0.5,{"y":null}]}}')

import tempfile
import torch.distributed.checkpoint as dcp
with tempfile.TemporaryDirectory() as folder:
    dcp.save({"model": {"w": base}, "opt": {"g": [{"lr": 0.1}], "step": torch.tensor(1.0)}}, checkpoint_id=folder, no_dist=True)
    with open(os.path.join(folder, ".metadata"), "rb") as f:
        metadata = f.read().replace(folder.encode().rsplit(b"/", 1)[1], b"folder12345")
        put("dcp_index", "torch", metadata)
        put("pickle", "metadata", metadata)

images = struct.pack(">IIII", 0x00000803, 2, 3, 3) + bytes(range(18))
put("idx", "images", images)
put("idx", "labels", struct.pack(">II", 0x00000801, 4) + bytes(4))
put("idx", "floats", struct.pack(">III", 0x00000d02, 1, 2) + struct.pack(">ff", 1, 2))
put("idx", "images_gz", gzip.compress(images, mtime=0))
put("idx", "empty", struct.pack(">II", 0x00000801, 0))
