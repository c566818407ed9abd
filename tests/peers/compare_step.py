#!/usr/bin/env python3
"""`lockstep bench step` beside PyTorch on the same cores, in turns: a row per network with the medians and their ratio.

    compare_step.py --lockstep build/release/lockstep [--python PYTHON_WITH_TORCH] [--rounds 5] [--ranks 1 2]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NETWORKS = [
    ("784-100-10, batch 100, Adam", "784,100,10", 100, "adam", False, 400),
    ("784-512-512-10, batch 128, SGD", "784,512,512,10", 128, "sgd", False, 100),
    ("600-512-128-128-1, batch 2000, SGD", "600,512,128,128,1", 2000, "sgd", True, 20),
]


def run_lockstep(program, ranks, layers, batch, optimizer, regression, repeat):
    widths = layers.split(",")
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "step.json")
        command = [str(HERE.parent.parent / "app" / "launch"), str(ranks), program, "bench", "step", "--features", widths[0],
                   "--hidden", ",".join(widths[1:-1]), "--outputs", widths[-1], "--batch", str(batch), "--optimizer", optimizer,
                   "--learning-rate", "0.001", "--repeat", str(repeat), "--json", result]
        subprocess.run(command + (["--regression"] if regression else []), check=True, stdout=subprocess.DEVNULL)
        with open(result) as file:
            return json.load(file)


def run_torch(python, ranks, layers, batch, optimizer, regression, repeat):
    command = [python, str(HERE / "torch_step.py"), "--layers", layers, "--batch", str(batch), "--optimizer", optimizer, "--ranks",
               str(ranks), "--repeat", str(repeat)]
    output = subprocess.run(command + (["--regression"] if regression else []), check=True, capture_output=True, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/release/lockstep")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    print("| network | ranks | lockstep ms | PyTorch ms | ratio (range) | roofline ms | input, compute, communication % | MB lockstep | MB PyTorch |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    peer = ""
    for name, *network in NETWORKS:
        for ranks in arguments.ranks:
            ours, theirs = [], []
            for _ in range(arguments.rounds):
                ours.append(run_lockstep(arguments.lockstep, ranks, *network))
                theirs.append(run_torch(arguments.python, ranks, *network))
            peer = theirs[0]["peer"]

            def median(runs, key):
                return statistics.median(run[key] for run in runs)

            ratios = sorted(b["step_ms"] / a["step_ms"] for a, b in zip(ours, theirs))
            split = [100 * median(ours, part + "_fraction") for part in ("input", "compute", "communication")]
            print(f"| {name} | {ranks} | {median(ours, 'step_ms'):.3f} | {median(theirs, 'step_ms'):.3f} | "
                  f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) | {median(ours, 'roofline_ms'):.3f} | "
                  f"{split[0]:.0f}, {split[1]:.0f}, {split[2]:.0f} | {median(ours, 'peak_resident_mb'):.0f} | "
                  f"{median(theirs, 'peak_resident_mb'):.0f} |", flush=True)
    print(f"\nPeer: {peer}; {arguments.rounds} rounds in turns, medians.")


if __name__ == "__main__":
    main()
