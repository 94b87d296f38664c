#!/usr/bin/env python3
"""Runs the benchmarks: cfabric beside its peers, in the same run, interleaved; prints a table and writes bench.json.

    bench/run.py BUILD [--rounds N] [--quick] [--only ROW,ROW] [--data FOLDER]

Each row is measured in rounds; in a round every program of the row runs once, one after the other, on one thread. A program reports the
median of ten blocks; the row takes the median over the rounds. ratio = ours / peer for costs and peer / ours for rates, so smaller is
better everywhere. A peer that is not there (no Python with PyTorch, no C++) leaves its row unmeasured, and says why.
"""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--quick", action="store_true", help="one short round: shows that everything runs, not how fast")
parser.add_argument("--only", default="", help="rows, separated by commas")
parser.add_argument("--data", default=os.environ.get("DATA", "/usr/share/datasets/fashion-mnist"))
options = parser.parse_args()
BUILD = os.path.abspath(options.build)
ROUNDS = 1 if options.quick else options.rounds
PYTHON = open(os.path.join(BUILD, "bench_python")).read().strip()
OURS = [os.path.join(BUILD, "bin", "bench_cfabric")]
CPP = [os.path.join(BUILD, "bin", "bench_cpp")]
PEER = [PYTHON, os.path.join(ROOT, "peer.py")]
RUN = [os.path.join(BUILD, "bin", "fabric"), "run", "--accelerator=cpu", "--devices=2", "--strategy=ddp"]
TWO = ["devices=2"]  # Lightning's own launcher, from inside the script
ENV = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", PYTHONWARNINGS="ignore", CUDA_VISIBLE_DEVICES="")
# Freed memory goes back at once, so that the resident size follows the tensors, in C as in Python.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_TOP_PAD_": "0"}
rows = []


class Missing(Exception):
    """A program of a row cannot run here."""


def scaled(n):
    return max(10, n // 20) if options.quick else n


def start(command, env=None):
    if not os.path.exists(command[0]):
        raise Missing(f"{command[0]} is not there")
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(ENV, **(env or {})), text=True,
                            start_new_session=True)  # fmt: skip


def stop(process):
    """Ends a process and what it started: its own session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def pairs(text):
    """"name number" anywhere: lines of several ranks may run into each other."""
    return [(name, float(number)) for name, number in re.findall(r"([a-z_]+) ([0-9]+(?:\.[0-9]+)?)", text)]


def output(command, env=None, timeout=300):
    """What a command printed, as {name: [numbers]}."""
    process = start(command, env)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        raise Missing(f"{' '.join(command)} did not end within {timeout} s") from None
    if process.returncode != 0:
        last = (err.strip().splitlines() or ["no message"])[-1]
        raise Missing(f"{os.path.basename(command[0])} {' '.join(command[1:3])}: exit {process.returncode}: {last}")
    values = {}
    for name, number in pairs(out):
        values.setdefault(name, []).append(number)
    return values


def value(command, name, env=None):
    values = output(command, env)
    if name not in values:
        raise Missing(f"{' '.join(command)} did not print {name}")
    return statistics.median(values[name])


def until_line(command, name):
    """Seconds from exec until a line appears; also what the program printed by its end."""
    begin = time.perf_counter()
    process = start(command)
    seconds, values = None, {}
    try:
        for line in process.stdout:
            for key, number in pairs(line):
                if key == name and seconds is None:
                    seconds = time.perf_counter() - begin
                values.setdefault(key, []).append(number)
        if process.wait(timeout=120) != 0 or seconds is None:
            last = (process.stderr.read().strip().splitlines() or ["no message"])[-1]
            raise Missing(f"{os.path.basename(command[0])}: {last}")
    finally:
        stop(process)
    return seconds, values


def elapsed(command, env=None):
    begin = time.perf_counter()
    output(command, env)
    return time.perf_counter() - begin


def interleave(*measures):
    """Calls each measure once per round; the medians."""
    results = [[] for _ in measures]
    for _ in range(ROUNDS):
        for k, measure in enumerate(measures):
            results[k].append(measure())
    return [statistics.median(r) for r in results]


def add(name, ours, peer, peer_name, unit, aim, rate=False):
    ratio = peer / ours if rate else ours / peer
    rows.append({"name": name, "ours": ours, "peer": peer, "peer_name": peer_name, "unit": unit, "ratio": round(ratio, 4), "aim": aim,
                 "met": ratio <= aim})  # fmt: skip
    show(rows[-1])


def missing(name, aim, peer_name, unit, reason):
    rows.append({"name": name, "ours": None, "peer": None, "peer_name": peer_name, "unit": unit, "ratio": None, "aim": aim, "met": False,
                 "reason": str(reason)})  # fmt: skip
    show(rows[-1])


def show(row):
    if row["ratio"] is None:
        print(f"{row['name']:34} not measured: {row['reason']}", flush=True)
        return
    number = lambda v: f"{v:.4g}"  # noqa: E731
    print(f"{row['name']:34} {number(row['ours']):>11} {number(row['peer']):>11} {row['unit']:9} {row['ratio']:8.3f} {row['aim']:8.3f} "
          f"{'met' if row['met'] else 'MISSED':7} {row['peer_name']}", flush=True)  # fmt: skip


def steps(*programs):
    """Measures of "seconds_per_step" in microseconds."""
    return interleave(*[lambda p=p: 1e6 * value(p, "seconds_per_step") for p in programs])


# ---------------------------------------------------------------- issue rows: one device


def mlp(batch, count, aim_cpp, aim_python):
    arguments = ["mlp", f"batch={batch}", f"steps={scaled(count)}"]
    names = [f"mlp_b{batch}_vs_cpp", f"mlp_b{batch}_vs_lightning"]
    try:
        ours, cpp, python = steps(OURS + arguments, CPP + arguments, PEER + arguments)
        add(names[0], ours, cpp, "libtorch C++", "us/step", aim_cpp)
        add(names[1], ours, python, "Lightning Fabric", "us/step", aim_python)
    except Missing as reason:
        for name, aim in zip(names, (aim_cpp, aim_python)):
            missing(name, aim, "", "us/step", reason)


def image_classifier():
    arguments = ["image", "batch=64", f"steps={scaled(20)}"]
    table = [("vs_cpp", "libtorch C++", 1.01), ("vs_lightning", "Lightning Fabric", 1.0), ("vs_plain_c", "the same C without Fabric", 1.01)]
    try:
        ours, *peers = steps(OURS + arguments, CPP + arguments, PEER + arguments, OURS + arguments + ["mode=plain"])
        for (name, peer_name, aim), peer in zip(table, peers):
            add(f"image_classifier_{name}", ours, peer, peer_name, "us/step", aim)
    except Missing as reason:
        for name, peer_name, aim in table:
            missing(f"image_classifier_{name}", aim, peer_name, "us/step", reason)


def simple(name, peer_name, unit, aim, measures, rate=False):
    try:
        ours, peer = interleave(*measures)
        add(name, ours, peer, peer_name, unit, aim, rate)
    except Missing as reason:
        missing(name, aim, peer_name, unit, reason)


def language_model():
    arguments = ["language", f"steps={scaled(10)}"]
    simple("language_model_vs_lightning", "Lightning Fabric", "us/step", round(1 / 1.1, 4),
           [lambda p=p: 1e6 * value(p + arguments, "seconds_per_step") for p in (OURS, PEER)])  # fmt: skip


def loader(workers):
    common = ["loader", "batch=64", f"workers={workers}", f"path={options.data}"]
    simple(f"loader_w{workers}_vs_pytorch", "DataLoader, per-sample transform", "samples/s", 1 / 20,
           [lambda: value(OURS + common + ["steps=3"], "samples_per_second"),
            lambda: value(PEER + common + ["steps=1"], "samples_per_second")], rate=True)  # fmt: skip


def peak_memory():
    arguments = ["peak_memory", "batch=8192"]
    simple("peak_memory_vs_pytorch", "PyTorch", "bytes", 1.05, [lambda p=p: value(p + arguments, "peak_bytes", MEMORY) for p in (OURS, PEER)])


def first_step():
    table = [("first_step_vs_lightning", "seconds"), ("rss_vs_lightning", "bytes")]
    seen = {}

    def measure(program, key):
        seconds, values = until_line(program + ["first_step", "batch=64"], "first_step")
        seen.setdefault(key, []).append(values["peak_rss"][0])
        return seconds

    try:
        ours, peer = interleave(lambda: measure(OURS, "ours"), lambda: measure(PEER, "peer"))
        add(table[0][0], ours, peer, "Lightning Fabric", "seconds", 0.5)
        add(table[1][0], statistics.median(seen["ours"]), statistics.median(seen["peer"]), "Lightning Fabric", "bytes", 0.5)
    except Missing as reason:
        for name, unit in table:
            missing(name, 0.5, "Lightning Fabric", unit, reason)


def op_call():
    arguments = ["op_call", f"steps={scaled(200000)}"]
    simple("op_call_vs_cpp", "at::add in C++", "ns/call", 2.0,
           [lambda p=p: 1e9 * value(p + arguments, "seconds_per_call") for p in (OURS, CPP)])  # fmt: skip


# ---------------------------------------------------------------- issue rows: many processes


def launch():
    seen = {}

    def measure(command, key):
        seconds, values = until_line(command, "first_step")
        seen.setdefault(key, []).append(statistics.median(values["peak_rss"]))
        return seconds

    arguments = ["first_step", "batch=64"]
    names = ["launch_first_step_2p_vs_lightning", "rss_rank_vs_lightning"]
    try:
        ours, peer = interleave(lambda: measure(RUN + OURS + arguments, "ours"), lambda: measure(PEER + arguments + TWO, "peer"))
        add(names[0], ours, peer, "Lightning Fabric", "seconds", 0.25)
        add(names[1], statistics.median(seen["ours"]), statistics.median(seen["peer"]), "Lightning Fabric", "bytes", 0.5)
    except Missing as reason:
        missing(names[0], 0.25, "Lightning Fabric", "seconds", reason)
        missing(names[1], 0.5, "Lightning Fabric", "bytes", reason)


def scaling():
    """One process's step time over two processes' (each with the same batch): 1 is ideal."""
    arguments = ["ddp", "batch=64", f"steps={scaled(20)}"]
    names = [("ddp_scaling_2p", "ideal", round(1 / 0.97, 4)), ("ddp_scaling_2p_lightning", "Lightning Fabric", 1.0)]
    commands = [OURS + arguments, RUN + OURS + arguments, PEER + arguments, PEER + arguments + TWO]
    try:
        one, two, peer_one, peer_two = steps(*commands)
        add(names[0][0], one / two, 1.0, names[0][1], "efficiency", names[0][2], rate=True)
        add(names[1][0], one / two, peer_one / peer_two, names[1][1], "efficiency", names[1][2], rate=True)
    except Missing as reason:
        for name, peer_name, aim in names:
            missing(name, aim, peer_name, "efficiency", reason)


def all_reduce():
    torchrun = [os.path.join(os.path.dirname(PYTHON), "torchrun"), "--nproc-per-node=2", PEER[1]]
    arguments = ["all_reduce", "steps=6"]
    simple("allreduce_100mb_vs_gloo", "torch.distributed with Gloo", "ms", 1.05,
           [lambda p=p: 1e3 * value(p + arguments, "seconds") for p in (RUN + OURS, torchrun)])  # fmt: skip


def start_up():
    simple("fabric_run_startup_ms", "aim of 20 ms", "ms", 1.0, [lambda: 1e3 * elapsed([RUN[0], "run", "--help"]), lambda: 20.0])
    true = shutil.which("true")
    ranks = RUN[:2] + ["--accelerator=cpu", "--devices=32", "--strategy=ddp", true]
    shell = ["/bin/sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do {true} & {true} & {true} & {true} & done; wait"]
    simple("launch_32_noop", "32 background jobs of sh", "ms", 5.0, [lambda: 1e3 * elapsed(ranks), lambda: 1e3 * elapsed(shell)])


# ---------------------------------------------------------------- issue rows: files and precision


def files():
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        ours, theirs, copied = (os.path.join(folder, name) for name in ("ours.pt", "theirs.pt", "dd.bin"))
        dd = ["dd", "if=/dev/zero", f"of={copied}", "bs=64M", "count=16", "conv=fsync"]
        dd[0] = shutil.which("dd") or "/bin/dd"
        count = ["steps=1" if options.quick else "steps=3"]  # the first one may have to get memory from the system
        table = [("save_1gb_vs_torch", "torch.save", round(1 / 1.5, 4)), ("save_1gb_vs_dd", "dd conv=fsync", 1.25),
                 ("load_1gb_vs_torch", "torch.load", round(1 / 1.5, 4))]  # fmt: skip
        try:
            save, peer_save, peer_dd = interleave(lambda: value(OURS + ["save", f"path={ours}"] + count, "seconds"),
                                                  lambda: value(PEER + ["save", f"path={theirs}"] + count, "seconds"),
                                                  lambda: elapsed(dd))  # fmt: skip
            add(table[0][0], save, peer_save, table[0][1], "seconds", table[0][2])
            add(table[1][0], save, peer_dd, table[1][1], "seconds", table[1][2])
            load, peer_load = interleave(lambda: value(OURS + ["load", f"path={ours}"] + count, "seconds"),
                                         lambda: value(PEER + ["load", f"path={theirs}"] + count, "seconds"))  # fmt: skip
            add(table[2][0], load, peer_load, table[2][1], "seconds", table[2][2])
        except Missing as reason:
            measured = {row["name"] for row in rows}
            for name, peer_name, aim in table:
                if name not in measured:
                    missing(name, aim, peer_name, "seconds", reason)


def async_save():
    name = "async_save_step_cost"
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        try:
            results = [output(OURS + ["async", "batch=64", f"steps={scaled(20)}", f"path={folder}/async.pt"]) for _ in range(ROUNDS)]
            alone, saving = (statistics.median(r[key][0] for r in results) for key in ("seconds_alone", "seconds_saving"))
            add(name, 1e6 * saving, 1e6 * alone, "the same steps without a save", "us/step", 1.1)
        except Missing as reason:
            missing(name, 1.1, "the same steps without a save", "us/step", reason)


def bf16():
    arguments = ["image", "batch=64", f"steps={scaled(20)}", "precision=bf16-mixed"]
    simple("bf16_mixed_step_vs_lightning", "Lightning Fabric", "us/step", 1.0,
           [lambda p=p: 1e6 * value(p + arguments, "seconds_per_step") for p in (OURS, PEER)])  # fmt: skip


BENCHES = [
    (["mlp_b1_vs_cpp", "mlp_b1_vs_lightning"], lambda: mlp(1, 4000, 1.03, 0.5)),
    (["mlp_b32_vs_cpp", "mlp_b32_vs_lightning"], lambda: mlp(32, 2000, 1.03, round(1 / 1.4, 4))),
    (["image_classifier_vs_cpp", "image_classifier_vs_lightning", "image_classifier_vs_plain_c"], image_classifier),
    (["language_model_vs_lightning"], language_model),
    (["loader_w0_vs_pytorch"], lambda: loader(0)),
    (["loader_w2_vs_pytorch"], lambda: loader(2)),
    (["peak_memory_vs_pytorch"], peak_memory),
    (["first_step_vs_lightning", "rss_vs_lightning"], first_step),
    (["op_call_vs_cpp"], op_call),
    (["launch_first_step_2p_vs_lightning", "rss_rank_vs_lightning"], launch),
    (["ddp_scaling_2p", "ddp_scaling_2p_lightning"], scaling),
    (["allreduce_100mb_vs_gloo"], all_reduce),
    (["fabric_run_startup_ms", "launch_32_noop"], start_up),
    (["save_1gb_vs_torch", "save_1gb_vs_dd", "load_1gb_vs_torch"], files),
    (["async_save_step_cost"], async_save),
    (["bf16_mixed_step_vs_lightning"], bf16),
]

load = os.getloadavg()[0]
print(f"{ROUNDS} rounds, one thread, {os.cpu_count()} processors, load average {load:.1f}"
      + (" (busy: times are doubtful)" if load > 0.5 * (os.cpu_count() or 1) else ""))  # fmt: skip
wanted = {name for name in options.only.split(",") if name}
print(f"{'row':34} {'ours':>11} {'peer':>11} {'unit':9} {'ratio':>8} {'aim':>8}         peer", flush=True)
for names, bench in BENCHES:
    if wanted and not wanted & set(names):
        continue
    try:
        bench()
    except Exception as error:  # one broken row must not take the others with it
        done = {row["name"] for row in rows}
        for name in names:
            if name not in done:
                missing(name, None, "", "", f"{type(error).__name__}: {error}")
with open(os.path.join(BUILD, "bench.json"), "w") as file:
    json.dump(rows, file, indent=1)
met = sum(row["met"] for row in rows)
print(f"{met} of {len(rows)} aims met; {BUILD}/bench.json")
sys.exit(0)
