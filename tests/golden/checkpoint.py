"""Checkpoints from and for Python.

    checkpoint.py make DIR      writes files of every kind that PyTorch can write
    checkpoint.py compare DIR   DIR/x.pt was read by cfabric and written as DIR/x.pt.again: both must hold the same
    checkpoint.py golden DIR    writes the few small files that are kept in the repository
    checkpoint.py safetensors DIR   reads DIR/*.safetensors, if the safetensors package is there
    checkpoint.py sharded_write|sharded_read|sharded_consolidated DIR   distributed checkpoints (PyTorch 2.3 and later)
    checkpoint.py huge DIR          a file of more than 4 GiB
    checkpoint.py script_make|script_check DIR   TorchScript modules
Exits with 77 when torch is missing."""
import io, os, sys, zipfile
from collections import OrderedDict, Counter

try:
    import torch
except ImportError:
    sys.exit(77)


class Custom:
    def __init__(self):
        self.x = 1


def dtypes():
    names = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128", "bool", "bfloat16"]
    newer = ["float8_e5m2", "float8_e4m3fn", "uint16", "uint32", "uint64", "complex32"]
    out = {}
    for name in names:
        out[name] = (torch.arange(12).reshape(3, 4) % 2).to(getattr(torch, name)) if name == "bool" else torch.arange(12).reshape(3, 4).to(getattr(torch, name))
    for name in newer:
        if hasattr(torch, name) and hasattr(torch._utils, "_rebuild_tensor_v3") and hasattr(torch, "float8_e5m2"):
            raw = torch.arange(48, dtype=torch.uint8)
            out[name] = raw.view(getattr(torch, name)).clone()
    out["empty"] = torch.zeros(2, 0)
    out["scalar"] = torch.tensor(2.5)
    return out


def model_and_optimizer(steps=2):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
    return model, optimizer


def plain_values():
    base = torch.arange(12.0).reshape(3, 4)
    return {"int": 3, "neg": -70000, "big": 2**40, "min": -(2**63), "float": 0.1, "nan": float("nan"), "inf": float("inf"), "none": None, "true": True,
            "false": False, "text": "caf\u00e9 \u20ac \U0001f600", "long": "x" * 300, "bytes": bytes(range(256)), "bytearray": bytearray(b"ab\xff"),
            "list": [1, [2, []], {}], "tuple": (1, (2,), ()), "size": torch.Size([2, 3]), "dtype": torch.float16, "device": torch.device("cpu"),
            "device1": torch.device("cuda", 1), "set": {7}, "complex": 1 + 2j, "param": torch.nn.Parameter(torch.ones(2)),
            "buffer": torch.nn.Parameter(torch.ones(2), requires_grad=False), "counter": Counter("aab"), "ordered": OrderedDict([("z", 1), ("a", 2)]),
            3: "three", -1: "minus", "base": base, "column": base[:, 1], "transposed": base.t(), "again": base, "grad": torch.ones(2, requires_grad=True),
            "expanded": torch.ones(1).expand(4), "slice": torch.arange(100)[10:20], "conj": torch.tensor([1 + 2j]).conj(), "shared": [base] * 3}


def lightning():
    model, optimizer = model_and_optimizer()
    hyper = {"lr": 0.1, "layers": [1, 2]}
    try:
        from lightning_fabric.utilities.data import AttributeDict
        hyper = AttributeDict(hyper)
    except ImportError:
        pass
    return {"epoch": 1, "global_step": 20, "pytorch-lightning_version": "2.6.0", "state_dict": model.state_dict(),
            "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 2, "completed": 1}}}},
            "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.5), "best_k_models": {}, "dirpath": "/x"}},
            "optimizer_states": [optimizer.state_dict()], "lr_schedulers": [{"base_lrs": [0.1], "last_epoch": 1}], "hparams_name": "kwargs",
            "hyper_parameters": hyper}


def make_big_endian(path, value):
    """What torch.save on a big-endian machine would write."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    source = zipfile.ZipFile(buffer)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        for info in source.infolist():
            name, data = info.filename.split("/", 1)[1], source.read(info)
            if name.startswith("data/"):
                data = b"".join(data[i:i + 4][::-1] for i in range(0, len(data), 4))  # float32 only
            if name == "byteorder":
                data = b"big"
            out.writestr("archive/" + name, data)
        if not any(i.filename.endswith("/byteorder") for i in source.infolist()):
            out.writestr("archive/byteorder", b"big")


def make(folder):
    model, optimizer = model_and_optimizer()
    save = lambda value, name, **kw: torch.save(value, os.path.join(folder, name), **kw)
    save(model.state_dict(), "state_dict.pt")
    save(optimizer.state_dict(), "optimizer.pt")
    nested = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "rng": torch.get_rng_state()}
    save(nested, "nested.pt")
    save(nested, "nested_legacy.pt", _use_new_zipfile_serialization=False)
    save(plain_values(), "values.pt")
    save(plain_values(), "values_legacy.pt", _use_new_zipfile_serialization=False)
    save(plain_values(), "values_protocol4.pt", pickle_protocol=4)
    save(plain_values(), "values_protocol5.pt", pickle_protocol=5)
    save(dtypes(), "dtypes.pt")
    save(lightning(), "lightning.pt")
    save(torch.arange(3.0), "bare_tensor.pt")
    save([], "empty.pt")
    many = {"p%d" % i: torch.full((3,), float(i)) for i in range(3000)}
    save(many, "many.pt")
    make_big_endian(os.path.join(folder, "big_endian.pt"), {"a": torch.arange(5.0), "b": torch.ones(2, 2)})
    save({"a": torch.arange(5.0), "b": torch.ones(2, 2)}, "little_endian.pt")
    # files that must be refused
    save({"x": Custom()}, "custom.refuse")
    save(model, "whole_model.refuse")
    save({"x": print}, "function.refuse")
    buffer = io.BytesIO()
    torch.save(torch.ones(3), buffer)
    source = zipfile.ZipFile(buffer)
    with zipfile.ZipFile(os.path.join(folder, "compressed.refuse"), "w", zipfile.ZIP_DEFLATED) as out:
        for info in source.infolist():
            out.writestr(info.filename, source.read(info))
    cyclic = []
    cyclic.append(cyclic)
    save(cyclic, "cyclic.refuse")
    save(2**100, "bigint.refuse")
    shared = []
    for _ in range(40):
        shared = [shared, shared]
    save(shared, "laughs.refuse")
    try:
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), os.path.join(folder, "script.refuse"))
    except Exception:
        pass


def load(path):
    if not path.endswith(".again"):  # our own
        return torch.load(path, weights_only=False) if hasattr(torch, "float8_e5m2") else torch.load(path)
    if tuple(int(x) for x in torch.__version__.split(".")[:2]) < (2, 0):
        return torch.load(path)  # weights_only did not know floats yet
    return torch.load(path, weights_only=True)


def same(a, b, where=""):
    if isinstance(a, torch.Tensor):
        a = a.detach() if not a.requires_grad else a
        assert isinstance(b, torch.Tensor), where
        assert a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad, (where, a, b)
        if a.numel():
            assert a.is_conj() or a.stride() == b.stride(), (where, a.stride(), b.stride())
            raw = lambda t: t.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)
            assert torch.equal(raw(a), raw(b)), (where, a, b)
    elif isinstance(a, complex):
        assert isinstance(b, torch.Tensor) and b.item() == a, where
    elif isinstance(a, (torch.dtype, torch.device)):
        assert str(a) == b, (where, a, b)
    elif isinstance(a, dict):
        assert type(b) is dict and list(a) == list(b), (where, list(a), b)
        for key in a:
            same(a[key], b[key], "%s[%r]" % (where, key))
    elif isinstance(a, (list, tuple, set)):
        kind = list if isinstance(a, (list, set)) else tuple
        assert type(b) is kind and len(a) == len(b), (where, a, b)
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, "%s[%d]" % (where, i))
    elif isinstance(a, (bytes, bytearray)):
        assert bytes(a) == b, where
    else:
        assert type(a) is type(b) and (a == b or a != a), (where, a, b)


def tensors(value, out):
    if isinstance(value, torch.Tensor):
        out.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            tensors(item, out)
    elif isinstance(value, (list, tuple)):
        for item in value:
            tensors(item, out)
    return out


def sharing(value):
    """Which tensors share a storage, as a pattern of first occurrences. Lazily conjugated ones get memory of their own."""
    seen, out = {}, []
    for t in tensors(value, []):
        out.append(None if t.is_conj() or not t.numel() else seen.setdefault(t.data_ptr() - t.storage_offset() * t.element_size(), len(seen)))
    return out


def compare(folder):
    count = 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".again"):
            continue
        source = name[:-6].replace("big_endian", "little_endian")  # PyTorch before 2.1 ignores the marker
        original, again = load(os.path.join(folder, source)), load(os.path.join(folder, name))
        same(original, again, name)
        if "values" in name:
            a, b = sharing(original), sharing(again)
            drop = [i for i, x in enumerate(b) if x is None or a[min(i, len(a) - 1)] is None]
            assert len({x for i, x in enumerate(b) if i not in drop}) <= len({x for x in a if x is not None}) + 1, (name, a, b)
            assert again["base"].data_ptr() == again["transposed"].data_ptr() == again["again"].data_ptr(), name
            assert again["column"].data_ptr() == again["base"].data_ptr() + 4, name
            assert again["shared"][2].data_ptr() == again["base"].data_ptr(), name
        if hasattr(torch, "float8_e5m2"):
            same(original, torch.load(os.path.join(folder, name), weights_only=True, mmap=True), name + " (mmap)")
        count += 1
    print("%d files equal" % count)
    assert count > 0


def golden(folder):
    model, optimizer = model_and_optimizer()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, os.path.join(folder, "python_zip.ckpt"))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, os.path.join(folder, "python_legacy.ckpt"),
               _use_new_zipfile_serialization=False)
    torch.save(lightning(), os.path.join(folder, "python_lightning.ckpt"))
    torch.save({"x": Custom()}, os.path.join(folder, "python_custom.ckpt"))


def flat():
    """What safetensors_test.c writes too."""
    out = {name: (torch.arange(6) % 2).reshape(2, 3).to(getattr(torch, name)) for name in
           ["bool", "uint8", "int8", "int16", "float16", "bfloat16", "int32", "float32", "complex64", "float64", "int64"]}
    out.update(scalar=torch.tensor(1.0), none=torch.zeros(0), rows=torch.zeros(2, 0))
    return out


def safetensors_golden(folder):
    from safetensors.torch import save_file
    save_file(flat(), os.path.join(folder, "reference.safetensors"), metadata={"format": "pt \"\u00e9\n\\"})


def safetensors(folder):
    """Reads DIR/*.safetensors with the reference library; x.safetensors must hold flat()."""
    try:
        from safetensors.torch import load_file
    except ImportError:
        sys.exit(77)
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            same(flat(), dict(sorted(load_file(os.path.join(folder, name)).items(), key=lambda kv: list(flat()).index(kv[0]))), name)


def sharded_state():
    """What sharded_test.c writes as two ranks."""
    return {"model": {"layer.weight": torch.arange(20.0).reshape(5, 4), "layer.bias": torch.arange(7).to(torch.bfloat16),
                      "grid": torch.arange(24).reshape(4, 6), "empty": torch.zeros(0, 3)},
            "optimizer": {"state": {"layer.weight": {"step": torch.tensor(5.0), "exp_avg": torch.arange(20.0).reshape(5, 4) * 2}},
                          "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": ["layer.weight", "layer.bias"]}]}}


def sharded_extra():
    base = torch.arange(4.0)
    return {"epoch": 3, "name": "caf\u00e9", "rng": torch.arange(5).to(torch.uint8), "pair": [base, base[1:]]}


def need_dcp():
    try:
        import torch.distributed.checkpoint.format_utils  # 2.3 and later
    except ImportError:
        sys.exit(77)


def sharded_write(folder):
    """Python's folder, for C to read and to consolidate."""
    need_dcp()
    import torch.distributed.checkpoint as dcp
    dcp.save(sharded_state(), checkpoint_id=folder, no_dist=True)
    torch.save(sharded_extra(), os.path.join(folder, "meta.pt"))


def sharded_read(folder):
    """C's folder through dcp.load into tensors of zeros, and through dcp_to_torch_save; then FOLDER.consolidated."""
    need_dcp()
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    wanted = sharded_state()
    zeros = lambda v: torch.zeros_like(v) if isinstance(v, torch.Tensor) else {k: zeros(x) for k, x in v.items()} if isinstance(v, dict) else v
    target = zeros(wanted)
    target["optimizer"]["param_groups"][0]["lr"] = -1.0
    dcp.load(target, checkpoint_id=folder, no_dist=True)
    same(wanted, target, "dcp.load")
    dcp_to_torch_save(folder, folder + ".torch")
    by_key = lambda v: {k: by_key(v[k]) for k in sorted(v)} if isinstance(v, dict) else [by_key(x) for x in v] if isinstance(v, list) else v
    same(by_key(wanted), by_key(torch.load(folder + ".torch", weights_only=False)), "dcp_to_torch_save")
    sharded_consolidated(folder)


def sharded_consolidated(folder):
    by_key = lambda v: {k: by_key(v[k]) for k in sorted(v)} if isinstance(v, dict) else [by_key(x) for x in v] if isinstance(v, list) else v
    both = dict(sharded_state(), **sharded_extra())
    for mmap in (False, True):
        again = torch.load(folder + ".consolidated", weights_only=True, mmap=mmap)
        same(by_key(both), by_key(again), "consolidated")
        assert again["pair"][1].data_ptr() == again["pair"][0].data_ptr() + 4


def huge(folder):
    """A sparse file of more than 4 GiB that C wrote: zip64."""
    if not hasattr(torch, "float8_e5m2"):
        sys.exit(77)  # no mmap=True before
    state = torch.load(os.path.join(folder, "huge.pt"), weights_only=True, mmap=True)
    assert state["big"].numel() == (1 << 32) + 100 and state["big"][-1] == 0
    assert torch.equal(state["small"], torch.arange(5.0))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
        self.head = torch.nn.Linear(8, 3)
        self.frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("offset", torch.full((3,), 0.5))

    def forward(self, x):
        return self.head(self.body(x)) * self.frozen + self.offset


def script_step(net):
    x = torch.linspace(-1, 1, 24).reshape(6, 4)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def script_make(folder):
    torch.manual_seed(3)
    net = Net()
    torch.jit.save(torch.jit.script(net), os.path.join(folder, "net.pt"))
    script_step(net)
    torch.save(net.state_dict(), os.path.join(folder, "trained.pt"))


def script_check(folder):
    """C loaded net.pt, did the same three steps and saved it as again.pt."""
    again = torch.jit.load(os.path.join(folder, "again.pt"))
    wanted = torch.load(os.path.join(folder, "trained.pt"))
    got = again.state_dict()
    assert list(sorted(got)) == list(sorted(wanted)), (list(got), list(wanted))
    for key in wanted:
        torch.testing.assert_close(got[key], wanted[key], rtol=1e-6, atol=1e-7)
    assert not again.training
    again(torch.ones(2, 4))


if __name__ == "__main__":
    import warnings
    warnings.filterwarnings("ignore")
    {"make": make, "compare": compare, "golden": golden, "safetensors": safetensors, "safetensors_golden": safetensors_golden,
     "sharded_write": sharded_write, "sharded_read": sharded_read, "sharded_consolidated": sharded_consolidated,
     "huge": huge, "script_make": script_make, "script_check": script_check}[sys.argv[1]](sys.argv[2])
