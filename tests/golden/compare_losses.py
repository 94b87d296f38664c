"""Runs a C example beside a Python script and compares their losses bit for bit. Exit code 77 means: cannot be compared here.

    compare_losses.py PYTHON SCRIPT PROGRAM STEPS [--epochs N] [--data PATH] [--precision NAME] [--devices N --strategy NAME]

With several devices every rank's losses and the trained weights are compared. With several epochs each has STEPS steps, followed by as many of evaluation.
"--data generated" makes a text for the language model, where WikiText-2 is not at hand.
"""
import os
import subprocess
import sys
import tempfile

python, script, program, steps = sys.argv[1:5]
program = os.path.abspath(program)
extra = sys.argv[5:]
epochs = int(extra[extra.index("--epochs") + 1]) if "--epochs" in extra else 1

devices = int(extra[extra.index("--devices") + 1]) if "--devices" in extra else 1

check = subprocess.run([python, "-c", "import torch; print(torch.__version__.split('+')[0])"], capture_output=True, text=True)
if check.returncode != 0:
    print(f"skipped: {python} has no torch")
    sys.exit(77)

environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")


def write_text(path, words=250_000, vocabulary=6000):
    """Words of a fixed sequence, rare ones less often, in lines of different lengths."""
    state, line = 1, []
    with open(path, "w") as f:
        for _ in range(words):
            state = (6364136223846793005 * state + 1442695040888963407) % 2**64
            line.append(f"w{int(vocabulary * ((state >> 11) / 2**53) ** 3)}")
            if state >> 59 == 0:
                f.write(" " + " ".join(line) + " \n")
                line = []
        f.write(" ".join(line))


with tempfile.TemporaryDirectory() as folder:
    if "generated" in extra:
        extra[extra.index("generated")] = os.path.join(folder, "text")
        write_text(os.path.join(folder, "text"))
    path = os.path.join(folder, "losses")
    peer = [python, script, "--steps", steps, "--threads", "1", *extra]
    ours = [program, *(["--epochs", "1"] if epochs == 1 else []), "--limit-batches", steps, "--threads", "1", "--log-losses", path, *extra]
    if devices > 1:
        peer += ["--out", path + ".python", "--weights", os.path.join(folder, "weights.python")]
        ours += ["--save-model", "--accelerator", "cpu"]
    # One after the other with several processes: they would only take the processors from each other.
    theirs = subprocess.Popen(peer, stdout=subprocess.PIPE, text=True, env=environment)
    if devices > 1:
        theirs.wait()
        if theirs.returncode == 77:
            print("skipped: Lightning Fabric is not installed")
            sys.exit(77)
    code = subprocess.run(ours, stdout=subprocess.DEVNULL, env=environment, cwd=folder).returncode
    printed = theirs.communicate()[0].split()
    if theirs.returncode != 0 or code != 0:
        sys.exit(f"exit codes: {script} {theirs.returncode}, {program} {code}")
    count = int(steps) * epochs
    for rank in range(devices):
        suffix = f".{rank}" if rank > 0 else ""
        with open(path + suffix) as f:
            got = f.read().split()
        if devices > 1:
            with open(path + ".python" + suffix) as f:
                printed = f.read().split()
        if len(got) != count or len(printed) != count:
            sys.exit(f"rank {rank}: {len(got)} and {len(printed)} losses, expected {count} of each")
        for i, (a, b) in enumerate(zip(got, printed)):
            if float.fromhex(a) != float.fromhex(b):
                sys.exit(f"rank {rank}, step {i}: {float.fromhex(a)!r} ({a}) in C, {float.fromhex(b)!r} ({b}) in Python")
    if devices > 1:
        same = (
            "import sys, torch; a, b = (torch.load(p, weights_only=True) for p in sys.argv[1:3]);"
            "sys.exit(list(a) != list(b) or not all(torch.equal(a[k], b[k]) for k in a))"
        )
        weights = [os.path.join(folder, "mnist_cnn.pt"), os.path.join(folder, "weights.python")]
        if subprocess.run([python, "-c", same, *weights]).returncode != 0:
            sys.exit("the trained weights differ")
print(f"{count} losses of {devices} rank(s) are equal to the last bit (torch {check.stdout.strip()}); the last is {float.fromhex(got[-1])}")
