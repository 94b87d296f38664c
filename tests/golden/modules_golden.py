"""The Python half of the modules' golden test: runs the C program given as the first argument, does the same with torch.nn, and
compares initial weights, printed form, outputs, buffers, gradients and random numbers consumed, bit for bit.

Usage: modules_golden.py PROGRAM. Exit 0: equal; 1: a difference, printed; 77: this Python has no torch, or another one than the program."""
import subprocess
import sys
import warnings
import zlib

try:
    import torch
    from torch import nn
    from torch.overrides import TorchFunctionMode
except ImportError:
    print("skipped: no torch in this Python")
    sys.exit(77)

warnings.filterwarnings("ignore")
ENC, DEC = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer

MODULES = {
    "linear": lambda: nn.Linear(5, 3),
    "linear_no_bias": lambda: nn.Linear(5, 3, bias=False),
    "linear_double": lambda: nn.Linear(5, 3, dtype=torch.float64),
    "linear_wide": lambda: nn.Linear(784, 128),
    "identity": lambda: nn.Identity(),
    "conv1d": lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1),
    "conv1d_same": lambda: nn.Conv1d(4, 6, 4, dilation=2, padding="same"),
    "conv2d": lambda: nn.Conv2d(3, 6, 3, 1, 1),
    "conv2d_groups": lambda: nn.Conv2d(4, 8, (3, 2), stride=(2, 1), groups=2, bias=False, dilation=(1, 2)),
    "conv2d_reflect": lambda: nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode="reflect"),
    "conv2d_replicate_same": lambda: nn.Conv2d(3, 4, (4, 3), padding="same", padding_mode="replicate"),
    "conv2d_circular": lambda: nn.Conv2d(3, 4, 3, padding=2, padding_mode="circular"),
    "conv2d_valid": lambda: nn.Conv2d(3, 4, 5, padding="valid"),
    "conv3d": lambda: nn.Conv3d(2, 3, 3, padding=1),
    "conv_transpose1d": lambda: nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1),
    "conv_transpose2d": lambda: nn.ConvTranspose2d(4, 6, (3, 2), stride=2, padding=1, groups=2, dilation=2),
    "max_pool1d": lambda: nn.MaxPool1d(3, stride=2),
    "max_pool2d": lambda: nn.MaxPool2d(2),
    "max_pool2d_all": lambda: nn.MaxPool2d((3, 2), (2, 1), (1, 0), (1, 2), ceil_mode=True),
    "max_pool2d_indices": lambda: nn.MaxPool2d(2, return_indices=True),
    "max_pool3d": lambda: nn.MaxPool3d(2),
    "avg_pool1d": lambda: nn.AvgPool1d(3, padding=1),
    "avg_pool2d": lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False, ceil_mode=True),
    "avg_pool2d_divisor": lambda: nn.AvgPool2d((2, 3), divisor_override=5),
    "avg_pool3d": lambda: nn.AvgPool3d(2),
    "adaptive_avg_pool1d": lambda: nn.AdaptiveAvgPool1d(4),
    "adaptive_avg_pool2d": lambda: nn.AdaptiveAvgPool2d((3, None)),
    "batch_norm1d": lambda: nn.BatchNorm1d(4),
    "batch_norm1d_seq": lambda: nn.BatchNorm1d(4, eps=1e-3, momentum=None),
    "batch_norm1d_eval": lambda: nn.BatchNorm1d(4),
    "batch_norm2d": lambda: nn.BatchNorm2d(3, momentum=0.3),
    "batch_norm2d_plain": lambda: nn.BatchNorm2d(3, affine=False, track_running_stats=False),
    "group_norm": lambda: nn.GroupNorm(3, 6),
    "group_norm_plain": lambda: nn.GroupNorm(2, 6, affine=False, eps=0.01),
    "layer_norm": lambda: nn.LayerNorm(10),
    "layer_norm_2d": lambda: nn.LayerNorm((4, 10), elementwise_affine=False),
    "dropout": lambda: nn.Dropout(0.3),
    "dropout_default": lambda: nn.Dropout(),
    "dropout_eval": lambda: nn.Dropout(0.3),
    "dropout2d": lambda: nn.Dropout2d(0.4),
    "alpha_dropout": lambda: nn.AlphaDropout(0.2),
    "embedding": lambda: nn.Embedding(9, 5),
    "embedding_padding": lambda: nn.Embedding(9, 5, padding_idx=-2),
    "embedding_max_norm": lambda: nn.Embedding(9, 5, max_norm=1.5, norm_type=1.0, scale_grad_by_freq=True),
    "relu": lambda: nn.ReLU(),
    "relu6": lambda: nn.ReLU6(),
    "selu": lambda: nn.SELU(),
    "silu": lambda: nn.SiLU(),
    "mish": lambda: nn.Mish(),
    "hardswish": lambda: nn.Hardswish(),
    "hardsigmoid": lambda: nn.Hardsigmoid(),
    "relu_inplace": lambda: nn.ReLU(True),
    "sigmoid": lambda: nn.Sigmoid(),
    "tanh": lambda: nn.Tanh(),
    "logsigmoid": lambda: nn.LogSigmoid(),
    "softsign": lambda: nn.Softsign(),
    "tanhshrink": lambda: nn.Tanhshrink(),
    "softmax2d": lambda: nn.Softmax2d(),
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "leaky_relu_default": lambda: nn.LeakyReLU(),
    "elu": lambda: nn.ELU(1.5),
    "celu": lambda: nn.CELU(alpha=0.7),
    "gelu": lambda: nn.GELU(),
    "gelu_tanh": lambda: nn.GELU("tanh"),
    "softplus": lambda: nn.Softplus(2.0, 3.0),
    "softshrink": lambda: nn.Softshrink(0.3),
    "hardshrink": lambda: nn.Hardshrink(),
    "hardtanh": lambda: nn.Hardtanh(-0.5, 0.75),
    "threshold": lambda: nn.Threshold(0.1, 20.0),
    "rrelu": lambda: nn.RReLU(),
    "prelu": lambda: nn.PReLU(6, init=0.1),
    "glu": lambda: nn.GLU(),
    "softmax": lambda: nn.Softmax(1),
    "log_softmax": lambda: nn.LogSoftmax(-1),
    "softmin": lambda: nn.Softmin(0),
    "flatten": lambda: nn.Flatten(),
    "unflatten": lambda: nn.Unflatten(1, (3, 4)),
    "sequential": lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 3), nn.LogSoftmax(1)),
    "sequential_conv": lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten(),
                                             nn.Linear(100, 5)),
    "rnn": lambda: nn.RNN(4, 6),
    "rnn_relu": lambda: nn.RNN(4, 6, 2, nonlinearity="relu", bias=False),
    "lstm": lambda: nn.LSTM(4, 6),
    "lstm_all": lambda: nn.LSTM(4, 6, 2, batch_first=True, dropout=0.5, bidirectional=True),
    "lstm_proj": lambda: nn.LSTM(4, 6, proj_size=3),
    "lstm_unbatched": lambda: nn.LSTM(4, 6),
    "gru": lambda: nn.GRU(4, 6),
    "gru_all": lambda: nn.GRU(4, 6, 3, batch_first=True, dropout=0.2, bidirectional=True),
    "mha": lambda: nn.MultiheadAttention(8, 2),
    "mha_self": lambda: nn.MultiheadAttention(8, 2, dropout=0.2),
    "mha_kv": lambda: nn.MultiheadAttention(8, 4, bias=False),
    "mha_masks": lambda: nn.MultiheadAttention(8, 2),
    "mha_float_mask": lambda: nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1),
    "mha_no_weights_masks": lambda: nn.MultiheadAttention(8, 2, batch_first=True),
    "mha_dims": lambda: nn.MultiheadAttention(8, 2, kdim=7, vdim=3, add_bias_kv=True, add_zero_attn=True),
    "mha_bias_kv_masks": lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True),
    "mha_unbatched": lambda: nn.MultiheadAttention(8, 2),
    "mha_eval": lambda: nn.MultiheadAttention(8, 2, batch_first=True),
    "mha_eval_mask": lambda: nn.MultiheadAttention(8, 2, batch_first=True),
    "mha_eval_slow": lambda: nn.MultiheadAttention(8, 2),
    "encoder_layer": lambda: ENC(8, 2, 16, dropout=0.2),
    "encoder_layer_masks": lambda: ENC(8, 2, 16, batch_first=True, norm_first=True, activation="gelu"),
    "encoder_layer_eval": lambda: ENC(8, 2, 16, batch_first=True),
    "encoder_layer_eval_gelu": lambda: ENC(8, 2, 16, batch_first=True, norm_first=True, activation="gelu"),
    "decoder_layer": lambda: DEC(8, 2, 16),
    "decoder_layer_masks": lambda: DEC(8, 2, 16, batch_first=True, norm_first=True),
    "encoder": lambda: nn.TransformerEncoder(ENC(8, 2, 16, batch_first=True), 2, nn.LayerNorm(8)),
    "encoder_padding": lambda: nn.TransformerEncoder(ENC(8, 2, 16, batch_first=True), 2),
    "decoder": lambda: nn.TransformerDecoder(DEC(8, 2, 16, dropout=0.3), 2),
    "transformer": lambda: nn.Transformer(8, 2, 2, 2, 16, dropout=0.2, batch_first=True),
    "transformer_eval": lambda: nn.Transformer(8, 2, 2, 2, 16, batch_first=True),
    "transformer_pre_norm": lambda: nn.Transformer(8, 4, 1, 1, 12, norm_first=True, activation="gelu"),
    "encoder_eval": lambda: nn.TransformerEncoder(ENC(8, 2, 16, batch_first=True), 2, nn.LayerNorm(8)),
    "encoder_eval_gaps": lambda: nn.TransformerEncoder(ENC(8, 2, 16, batch_first=True), 2),
    "encoder_eval_no_nested": lambda: nn.TransformerEncoder(ENC(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False),
    "encoder_eval_causal": lambda: nn.TransformerEncoder(ENC(8, 2, 16, batch_first=True, activation="gelu"), 2),
    "encoder_eval_seq_first": lambda: nn.TransformerEncoder(ENC(8, 2, 16), 2),
    "empty_linear": lambda: nn.Linear(5, 3),
    "empty_conv2d": lambda: nn.Conv2d(3, 6, 3),
    "empty_embedding": lambda: nn.Embedding(9, 5, padding_idx=0),
    "empty_lstm": lambda: nn.LSTM(4, 6, 2),
    "empty_batch_norm": lambda: nn.BatchNorm2d(3),
    "empty_mha": lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True),
    "empty_transformer": lambda: nn.Transformer(8, 2, 1, 1, 16),
    "mse_loss": lambda: nn.MSELoss(),
    "l1_loss": lambda: nn.L1Loss(reduction="sum"),
    "smooth_l1_loss": lambda: nn.SmoothL1Loss(beta=0.5),
    "huber_loss": lambda: nn.HuberLoss(reduction="none", delta=0.7),
    "nll_loss": lambda: nn.NLLLoss(),
    "nll_loss_2d": lambda: nn.NLLLoss(ignore_index=1),
    "cross_entropy_loss": lambda: nn.CrossEntropyLoss(label_smoothing=0.1),
    "cross_entropy_loss_probs": lambda: nn.CrossEntropyLoss(reduction="sum"),
    "cross_entropy_loss_weight": lambda: nn.CrossEntropyLoss(weight=torch.rand(4)),
    "bce_loss": lambda: nn.BCELoss(),
    "bce_with_logits_loss": lambda: nn.BCEWithLogitsLoss(pos_weight=torch.rand(4)),
    "kl_div_loss": lambda: nn.KLDivLoss(reduction="batchmean"),
    "kl_div_loss_log": lambda: nn.KLDivLoss(reduction="mean", log_target=True),
}

INITS = {
    "uniform_": lambda t: nn.init.uniform_(t, -0.5, 0.25),
    "normal_": lambda t: nn.init.normal_(t, 0.3, 2.0),
    "normal_large": lambda t: nn.init.normal_(t),
    "constant_": lambda t: nn.init.constant_(t, 0.1),
    "ones_": lambda t: nn.init.ones_(t),
    "zeros_": lambda t: nn.init.zeros_(t),
    "xavier_uniform_": lambda t: nn.init.xavier_uniform_(t, nn.init.calculate_gain("relu")),
    "xavier_normal_": lambda t: nn.init.xavier_normal_(t, gain=0.7),
    "kaiming_uniform_": lambda t: nn.init.kaiming_uniform_(t),
    "kaiming_uniform_out": lambda t: nn.init.kaiming_uniform_(t, 0.3, "fan_out"),
    "kaiming_normal_": lambda t: nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
    "trunc_normal_": lambda t: nn.init.trunc_normal_(t, 0.1, 1.5),
    "trunc_normal_narrow": lambda t: nn.init.trunc_normal_(t, 0.0, 1.0, 0.1, 0.3),
    "trunc_normal_tail": lambda t: nn.init.trunc_normal_(t, a=1.0, b=2.0),
    "orthogonal_": lambda t: nn.init.orthogonal_(t),
    "orthogonal_wide": lambda t: nn.init.orthogonal_(t, 1.5),
}

# Options that are arguments of forward() in Python.
CALL = {
    "mha_masks": {"average_attn_weights": False},
    "mha_float_mask": {"need_weights": False},
    "mha_no_weights_masks": {"need_weights": False},
    "mha_eval_mask": {"need_weights": False},
    "mha_eval_slow": {"need_weights": False},
}


class EmptyInit(TorchFunctionMode):
    """What Lightning Fabric's empty_init does: functions that torch.nn.init announces return their tensor as it is."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def as_bytes(tensor):
    data = tensor.detach().contiguous().numpy().tobytes()
    return "crc32:%08x" % zlib.crc32(data) if len(data) > 2048 else data.hex()


def line(kind, key, tensor):
    sizes = "x".join(str(n) for n in tensor.shape) or "scalar"
    return f"{kind} {key} {str(tensor.dtype)[6:]} {sizes} {as_bytes(tensor)}"


def make_input(spec, earlier):
    if spec == "-":
        return None
    if spec.startswith("="):
        return earlier[int(spec[1:])]
    kind, sizes = spec.split(":")
    shape = [int(n) for n in sizes.split(",")]
    if kind == "f64":
        return torch.randn(shape, dtype=torch.float64).requires_grad_()
    if kind == "f":
        return torch.randn(shape).requires_grad_()
    if kind == "u":
        return torch.rand(shape).requires_grad_()
    if kind == "n":
        return torch.randn(shape)
    if kind[0] == "i":
        return torch.randint(int(kind[1:]), shape)
    if kind == "m":
        mask = torch.rand(shape) > 0.6
        mask[:, 0] = False
        return mask
    if kind == "r":
        return torch.arange(shape[0])[:, None] + torch.arange(shape[1]) >= shape[1]
    causal = torch.triu(torch.full((shape[0], shape[0]), float("-inf")), diagonal=1)
    return torch.isneginf(causal) if kind == "cb" else causal


def call(name, module, inputs):
    """The inputs in the C order, as Python's forward() wants them. Returns a flat list."""
    options = dict(CALL.get(name, {}))
    if isinstance(module, nn.MultiheadAttention):
        padded = inputs + [None] * (5 - len(inputs))
        result = module(*padded[:3], key_padding_mask=padded[3], attn_mask=padded[4], **options)
    elif isinstance(module, nn.LSTM) and len(inputs) == 3:
        result = module(inputs[0], (inputs[1], inputs[2]))
    else:
        result = module(*inputs)
    if not isinstance(result, tuple):
        return [result]
    flat = []
    for item in result:
        flat.extend(item if isinstance(item, tuple) else [item])
    return flat


def run_case(header):
    name, specs, mode = header.split("|")
    train = mode == "train"
    lines = ["case " + header]
    torch.manual_seed(20240601)
    if mode == "init":
        result = INITS[name](torch.zeros([int(n) for n in specs.split(",")]))
        return lines + [line("out", 0, result), "rng " + as_bytes(torch.rand(1, dtype=torch.float64))]
    if mode == "empty":
        with EmptyInit():
            module = MODULES[name]()
        return lines + ["repr " + repr(module).replace("\n", "\\n"), "rng " + as_bytes(torch.rand(1, dtype=torch.float64))]
    module = MODULES[name]()
    lines += [line("state", key, value) for key, value in module.state_dict().items()]
    lines.append("repr " + repr(module).replace("\n", "\\n"))
    inputs = []
    for spec in specs.split():
        inputs.append(make_input(spec, inputs))
    module.train(train)
    with torch.set_grad_enabled(train):
        outputs = call(name, module, inputs)
        for i, out in enumerate(outputs):
            lines.append(f"out {i} none" if out is None else line("out", i, out))
        lines += [line("after", key, value) for key, value in module.named_buffers()]
        if train:
            loss = None
            for out in outputs:
                if out is None or not out.requires_grad:
                    continue
                part = (out * torch.randn_like(out)).sum()
                loss = part if loss is None else loss + part
            if loss is not None:
                loss.backward()
            lines += [line("grad", key, p.grad) for key, p in module.named_parameters() if p.grad is not None]
            lines += [line("grad_input", i, x.grad) for i, x in enumerate(inputs)
                      if x is not None and x.is_leaf and x.grad is not None]
    lines.append("rng " + as_bytes(torch.rand(1, dtype=torch.float64)))
    return lines


def main():
    torch.set_num_threads(1)
    done = subprocess.run([sys.argv[1]], stdout=subprocess.PIPE, text=True, timeout=300)
    got, cases = {}, []
    for text in done.stdout.splitlines():
        if text.startswith("case "):
            cases.append(text[5:])
            got[cases[-1]] = []
        if cases:
            got[cases[-1]].append(text)
    bad = 0
    for header in cases:
        want = run_case(header)
        have = [text for text in got[header] if text != "end"]
        if have == want:
            continue
        bad += 1
        print("DIFFERENT", header)
        for i in range(max(len(have), len(want))):
            h = have[i] if i < len(have) else "(nothing)"
            w = want[i] if i < len(want) else "(nothing)"
            if h != w:
                print("   C     ", h[:200])
                print("   Python", w[:200])
    missing = (set(MODULES) | set(INITS)) - {header.split("|")[0] for header in cases}
    if missing:
        print("cases without a C side:", ", ".join(sorted(missing)))
    complete = done.stdout.endswith("end\n")
    if not complete:
        print("the C program did not reach its end, exit status", done.returncode)
    print(f"{len(cases) - bad} of {len(cases)} cases equal to torch {torch.__version__}, bit for bit")
    return 0 if bad == 0 and not missing and complete and cases else 1


if __name__ == "__main__":
    sys.exit(main())
