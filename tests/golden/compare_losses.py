"""Runs a C example beside a Python script and compares their losses bit for bit. Exit code 77 means: cannot be compared here.

    compare_losses.py PYTHON SCRIPT PROGRAM STEPS [--epochs N] [--data PATH] [--precision NAME]

With several epochs each has STEPS steps, followed by as many of evaluation.
"--data generated" makes a text for the language model, where WikiText-2 is not at hand.
"""
import os
import subprocess
import sys
import tempfile

python, script, program, steps = sys.argv[1:5]
extra = sys.argv[5:]
epochs = int(extra[extra.index("--epochs") + 1]) if "--epochs" in extra else 1

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
    expected = subprocess.Popen(
        [python, script, "--steps", steps, "--threads", "1", *extra], stdout=subprocess.PIPE, text=True, env=environment
    )
    path = os.path.join(folder, "losses")
    command = [program, *(["--epochs", "1"] if epochs == 1 else []), "--limit-batches", steps, "--threads", "1", "--log-losses", path, *extra]
    ours = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment)
    theirs = expected.communicate()[0].split()
    if expected.returncode != 0 or ours.returncode != 0:
        sys.exit(f"exit codes: {script} {expected.returncode}, {program} {ours.returncode}")
    with open(path) as f:
        got = f.read().split()
count = int(steps) * epochs
if len(got) != count or len(theirs) != count:
    sys.exit(f"{len(got)} and {len(theirs)} losses, expected {count} of each")
for i, (a, b) in enumerate(zip(got, theirs)):
    if float.fromhex(a) != float.fromhex(b):
        sys.exit(f"step {i}: {float.fromhex(a)!r} ({a}) in C, {float.fromhex(b)!r} ({b}) in Python")
print(f"{count} losses are equal to the last bit (torch {check.stdout.strip()}); the last is {float.fromhex(got[-1])}")
