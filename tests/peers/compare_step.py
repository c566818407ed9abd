#!/usr/bin/env python3
"""`lockstep bench step` beside PyTorch or JAX on the same cores, in turns: a row per network with the medians and their
ratio.

    compare_step.py --lockstep build/release/lockstep [--python PYTHON_WITH_TORCH] [--rounds 5] [--ranks 1 2]
                    [--networks cnn gpt-256 ...] [--precision bf16] [--best-layout]
    compare_step.py --peer jax --python PYTHON_WITH_JAX --ranks 1 ...

With --best-layout PyTorch makes the step in its default layout and in channels-last, where it has one, in the same
turns; the row is the faster one's.

With --precision bf16 Lockstep also makes the step in fp32, in the same turns, PyTorch computes under autocast, and JAX
multiplies in bf16. Where the processor does not multiply faster in bf16, Lockstep says so and the comparison ends.
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
EXAMPLES = HERE.parent.parent / "app" / "examples"
PEERS = {"torch": "PyTorch", "jax": "JAX"}
# name, as in the README; arguments for `lockstep bench step`; arguments for torch_step.py and jax_step.py; timed steps
NETWORKS = {
    "mlp-100": ("784-100-10, batch 100, Adam",
                "--features 784 --hidden 100 --outputs 10 --batch 100 --optimizer adam --learning-rate 0.001",
                "--layers 784,100,10 --batch 100 --optimizer adam", 400),
    "mlp-512": ("784-512-512-10, batch 128, SGD",
                "--features 784 --hidden 512,512 --outputs 10 --batch 128 --optimizer sgd --learning-rate 0.001",
                "--layers 784,512,512,10 --batch 128", 100),
    "regression": ("600-512-128-128-1, batch 2000, SGD",
                   "--features 600 --hidden 512,128,128 --outputs 1 --batch 2000 --optimizer sgd --learning-rate 0.001 "
                   "--regression",
                   "--layers 600,512,128,128,1 --batch 2000 --regression", 20),
    "cnn": ("tutorial CNN, batch 128, SGD",
            "--model cnn --image 24x24x3 --batch 128 --average-decay 0 --l2 0 --learning-rate 0.01",
            "--network cnn --batch 128", 10),
    "resnet-20": ("ResNet-20, batch 64, Nesterov", "--model resnet --image 32x32x3 --batch 64 --learning-rate 0.01",
                  "--network resnet-20 --batch 64", 10),
    "lstm-200": ("LSTM 2x200, batch 20 x 20, SGD", "--model lstm --outputs 10000", "--network lstm-200 --batch 20", 20),
    "lstm-650": ("LSTM 2x650, batch 20 x 35, dropout 0.5, SGD",
                 "--model lstm --hidden 650 --unroll 35 --dropout 0.5 --outputs 10000", "--network lstm-650 --batch 20", 6),
    "gpt-256": ("GPT 4x256, batch 16 x 128, AdamW",
                "--model gpt --layers 4 --width 256 --heads 4 --context 128 --batch 16 --outputs 256 --learning-rate 0.0003",
                "--network gpt-256 --batch 16", 10),
    "cosmoflow-32": ("CosmoFlow 32x32x32, batch 4, Adam",
                     f"--model {EXAMPLES}/cosmoflow/cosmoflow.yaml --image 32x32x32x4 --filters 32 --levels 4 --outputs 4 "
                     "--regression --batch 4", "--network cosmoflow-32 --batch 4", 10),
    "cosmoflow-64": ("CosmoFlow 64x64x64, batch 1, Adam",
                     f"--model {EXAMPLES}/cosmoflow/cosmoflow.yaml --image 64x64x64x4 --filters 32 --levels 5 --outputs 4 "
                     "--regression --batch 1", "--network cosmoflow-64 --batch 1", 5),
    "unet-2d": ("U-Net 128x128, batch 4, AdamW", f"--model {EXAMPLES}/unet/unet.yaml --image 128x128x1 --outputs 3 --batch 4",
                "--network unet-2d --batch 4", 6),
    "unet-3d": ("U-Net 32x32x32, batch 2, AdamW",
                f"--model {EXAMPLES}/unet/unet.yaml --image 32x32x32x1 --outputs 3 --batch 2",
                "--network unet-3d --batch 2", 6),
    "spectra": ("spectra of 1000 channels, batch 64, Adam",
                f"--model {EXAMPLES}/spectra/spectra.yaml --image 1000x1 --outputs 2 --regression --batch 64",
                "--network spectra --batch 64", 20),
    "gru": ("GRU 2x128, windows of 96x8, batch 64, Adam",
            f"--model {EXAMPLES}/series/series.yaml --image 96x8 --layers 2 --width 128 --outputs 24 --regression --batch 64",
            "--network gru --batch 64", 10),
    "vit": ("ViT 4x128, 64 patches, batch 32, AdamW",
            f"--model {EXAMPLES}/vit/vit.yaml --image 32x32x3 --blocks 4 --width 128 --outputs 10 --batch 32",
            "--network vit --batch 32", 10),
}
EXAMPLE_NETWORKS = ("cosmoflow-32", "cosmoflow-64", "unet-2d", "unet-3d", "spectra", "gru", "vit")  # not of jax_step.py
LAYOUTS = ("cnn", "resnet-20", "cosmoflow-32", "cosmoflow-64", "unet-2d", "unet-3d", "spectra", "vit")  # with channels-last


def processor_ms(program, ours, repeat, precision):
    """Lockstep's processor time of a step: of a long run less that of a short one, user and system."""
    def seconds(count):
        command = [program, "bench", "step", *ours.split(), "--warmup", "2", "--repeat", str(count), "--no-roof", "--device", "cpu",
                   "--precision", precision]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"lockstep bench step --precision {precision} failed, see above")
        return used.ru_utime + used.ru_stime

    short = max(2, repeat // 5)
    return 1e3 * (seconds(short + repeat) - seconds(short)) / repeat


def run_lockstep(program, ranks, ours, repeat, precision):
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "step.json")
        command = [str(HERE.parent.parent / "app" / "launch"), str(ranks), program, "bench", "step", *ours.split(),
                   "--device", "cpu", "--warmup", str(max(3, repeat // 20)), "--repeat", str(repeat), "--precision", precision, "--json",
                   result]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            sys.exit(f"lockstep bench step --precision {precision} failed, see above")
        with open(result) as file:
            return json.load(file)


def run_peer(arguments, ranks, theirs, repeat):
    command = [arguments.python, str(HERE / f"{arguments.peer}_step.py"), *theirs.split(), "--warmup",
               str(max(3, repeat // 20)), "--repeat", str(repeat), "--precision", arguments.precision]
    if arguments.peer == "torch":
        command += ["--ranks", str(ranks)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def compare_processor_time(arguments):
    peer = PEERS[arguments.peer]
    ways = [arguments.precision] + (["fp32"] if arguments.precision != "fp32" else []) + [peer]
    print("| network | " + " | ".join(f"{way} ms" for way in ways) + " | " +
          " | ".join(f"{way} / {ways[0]} (range)" for way in ways[1:]) + " |")
    print("| --- " * (2 * len(ways)) + "|")
    for key in arguments.networks:
        name, ours, theirs, repeat = NETWORKS[key]
        if arguments.channels_last and key in LAYOUTS:
            theirs += " --channels-last"
        times = {way: [] for way in ways}
        for _ in range(arguments.rounds):
            for way in ways[:-1]:
                times[way].append(processor_ms(arguments.lockstep, ours, repeat, way))
            times[peer].append(run_peer(arguments, 1, theirs, repeat)["processor_ms"])

        def ratio(way):
            ratios = sorted(b / a for a, b in zip(times[ways[0]], times[way]))
            return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"

        print(f"| {name} | " + " | ".join(f"{statistics.median(times[way]):.3f}" for way in ways) + " | " +
              " | ".join(ratio(way) for way in ways[1:]) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default="build/release/lockstep")
    parser.add_argument("--peer", default="torch", choices=list(PEERS))
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has the peer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), help="default: all that the peer has")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--processor-time", action="store_true",
                        help="compare processor time instead, of one rank: for a machine that others use")
    parser.add_argument("--compile", action="store_true", help="PyTorch with torch.compile")
    parser.add_argument("--channels-last", action="store_true", help="PyTorch with channels-last images, volumes and spectra")
    parser.add_argument("--best-layout", action="store_true", help="PyTorch in the faster of its layouts")
    arguments = parser.parse_args()
    if arguments.peer == "jax" and (arguments.compile or arguments.channels_last or arguments.best_layout or
                                    not (arguments.processor_time or arguments.ranks == [1])):
        parser.error("--peer jax: one rank (--ranks 1), always compiled, images always channels-last")
    known = [key for key in NETWORKS if arguments.peer == "torch" or key not in EXAMPLE_NETWORKS]
    arguments.networks = arguments.networks or known
    if not set(arguments.networks) <= set(known):
        parser.error(f"--peer {arguments.peer} has {', '.join(known)}")
    if arguments.best_layout and (arguments.channels_last or arguments.processor_time):
        parser.error("--best-layout: without --channels-last and --processor-time")
    if arguments.processor_time:
        return compare_processor_time(arguments)
    both = arguments.precision != "fp32"
    print(f"| network | ranks | lockstep ms | {'fp32 ms | its ratio (range) | ' if both else ''}"
          f"{PEERS[arguments.peer]} ms | ratio (range) | roofline ms | input, compute, communication % | MB lockstep | "
          f"MB {PEERS[arguments.peer]} |")
    print("| --- " * (11 if both else 9) + "|")
    peer = ""
    for key in arguments.networks:
        name, our_network, their_network, repeat = NETWORKS[key]
        if arguments.channels_last and key in LAYOUTS:
            their_network += " --channels-last"
        if arguments.compile:
            their_network += " --compile"
        for ranks in arguments.ranks:
            ours, in_fp32, theirs, channels_last = [], [], [], []
            for _ in range(arguments.rounds):
                ours.append(run_lockstep(arguments.lockstep, ranks, our_network, repeat, arguments.precision))
                if both:
                    in_fp32.append(run_lockstep(arguments.lockstep, ranks, our_network, repeat, "fp32"))
                theirs.append(run_peer(arguments, ranks, their_network, repeat))
                if arguments.best_layout and key in LAYOUTS:
                    channels_last.append(run_peer(arguments, ranks, their_network + " --channels-last", repeat))
            peer = theirs[0]["peer"]

            def median(runs, key):
                return statistics.median(run[key] for run in runs)

            row = name
            if channels_last and median(channels_last, "step_ms") < median(theirs, "step_ms"):
                theirs, row = channels_last, f"{name} (channels-last)"

            def ratio(others):
                ratios = sorted(b["step_ms"] / a["step_ms"] for a, b in zip(ours, others))
                return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"

            split = [100 * median(ours, part + "_fraction") for part in ("input", "compute", "communication")]
            fp32 = f"{median(in_fp32, 'step_ms'):.3f} | {ratio(in_fp32)} | " if both else ""
            print(f"| {row} | {ranks} | {median(ours, 'step_ms'):.3f} | {fp32}{median(theirs, 'step_ms'):.3f} | "
                  f"{ratio(theirs)} | {median(ours, 'roofline_ms'):.3f} | "
                  f"{split[0]:.0f}, {split[1]:.0f}, {split[2]:.0f} | {median(ours, 'peak_resident_mb'):.0f} | "
                  f"{median(theirs, 'peak_resident_mb'):.0f} |", flush=True)
    print(f"\nPeer: {peer}; {arguments.precision}; {arguments.rounds} rounds in turns, medians.")


if __name__ == "__main__":
    main()
