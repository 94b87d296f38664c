"""What the golden scripts share: running the C program, comparing its lines with Python's."""
import subprocess
import sys

import torch

torch.set_num_threads(1)
VERSION = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])


def program_lines(*arguments):
    """The lines that the C program (argv[1]) prints, as {key: rest}; a line is "key rest"."""
    result = subprocess.run([sys.argv[1], *arguments], stdout=subprocess.PIPE, timeout=240, check=False)
    if result.returncode != 0:
        sys.exit(f"{sys.argv[1]} exited with {result.returncode}")
    lines = {}
    for line in result.stdout.decode().splitlines():
        key, _, rest = line.partition(" ")
        lines[key] = rest
    return lines


def compare(expected, found):
    """Compares two {key: text}; prints the first differences and ends the process."""
    wrong = [key for key in expected if expected[key] != found.get(key)]
    extra = [key for key in found if key not in expected]
    for key in wrong[:20]:
        print(f"{key}\n  PyTorch {expected[key]}\n  cfabric {found.get(key, '(missing)')}")
    for key in extra[:20]:
        print(f"{key}: only cfabric printed it: {found[key]}")
    print(f"torch {torch.__version__}: {len(expected)} values compared, {len(wrong)} differ, {len(extra)} unexpected")
    sys.exit(1 if wrong or extra or not expected else 0)
