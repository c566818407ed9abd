#!/usr/bin/env python3
"""roofline.py LOCKSTEP [--check README]: what an H200 could do at best, part by part, and what was measured.

FLOPs are those of the program's own plan (bench step --plan). Bytes are counted from the passes that the kernels make
over device memory; what is read again within one kernel is taken to come from L2. A part takes at least FLOPs over the
peak of its units, bytes over the bandwidth, or the time of the kernels that wait for each other in it, whichever is
longest; parts follow one another. --check compares the table with the one in README and fails where they differ.
"""
import json
import subprocess
import sys
import tempfile

TENSOR = 749e12  # bf16, FLOP/s: 8,192 rows and columns on an H200 (results/h200-86192c2.json), like the next
BANDWIDTH = 4.1e12  # bytes/s: the quickest passes there
DATA_SHEET = 4.8e12  # bytes/s
ATTENTION = 300e12  # reported for cuDNN 9.19's backward pass with heads of 64
L2 = 5.5e12  # bytes/s: assumed
KERNEL = 2.5e-6  # s: assumed for a small kernel in a graph that waits for the preceding one

# Microseconds of the units below: ncu on an H200, the program of results/h200-bfead72.json.
PROFILED = {
    "products of the blocks": 795, "attention": 325, "layer norms with residuals": 106, "sums of biases' gradients": 57,
    "products of the head": 303, "loss": 94, "embedding": 28,
    "norm and AdamW, once in 32 samples": 32.7, "convolutions and their gradients": 60.5,
    "batch norm and ReLU forward": 28.6, "batch norm and ReLU backward": 58.2}
# The whole step: results/h200-86192c2.json.
STEPS = {"GPT-2 124M": 57.182e3 / 32, "ResNet-50, 224 x 224": 31.107e3 / 256, "LSTM 2 x 1,024, 64 x 35 tokens": 1.5768e3,
         "MLP 784-512-512-10, 128 samples": 86.9}


def plan(lockstep, *options):
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run([lockstep, "bench", "step", *options, "--plan", file.name], check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in open(file.name)]


def flops(layers, *ends):
    chosen = [layer for layer in layers if layer["layer"].endswith(ends)]
    return sum(layer["forward_flops"] for layer in chosen), sum(layer["backward_flops"] for layer in chosen)


def gpt(lockstep):
    """A sample of 1,024 tokens; 32 in a step. `row`: bytes of [tokens, width] of a sample."""
    blocks, width, context, words = 12, 768, 1024, 50304
    layers = plan(lockstep, "--model", "gpt", "--layers", "12", "--width", "768", "--heads", "12", "--context", "1024",
                  "--features", "1024", "--outputs", "50257", "--batch", "1")
    parameters = sum(layer["parameters"] for layer in layers)
    row, logits = 2 * context * width, 2 * context * words
    forward, backward = flops(layers, "feed_forward", "attention/joint", "attention/scores", "attention/output")
    scores = blocks * 2 * 2 * width * context * (context + 1) / 2
    head = sum(flops(layers, "head"))
    weights = 3 * 2 * parameters / 32
    return "GPT-2 124M", "tokens", context, [
        # GELU and its gradient belong to the products around them.
        ("products of the blocks", forward + backward - 3 * scores, 56 * blocks * row + weights, TENSOR, 0),
        ("attention", 3.5 * scores, 16 * blocks * row, ATTENTION, 0),
        ("layer norms with residuals", 0, 16 * blocks * row, 1, 0),
        ("sums of biases' gradients", 0, 5 * blocks * row, 1, 0),
        ("products of the head", head, 3 * logits, TENSOR, 0),
        ("loss", 0, 2 * logits, 1, 0),
        ("embedding", 0, 5 * row, 1, 0),
        ("norm and AdamW, once in 32 samples", 0, 34 * parameters / 32, 1, 0)]


def resnet(lockstep):
    """`outputs`: bytes of all convolutions' outputs, as many as those of batch norms. Batch norm goes backward over x and
    d_y twice and writes d_x. Behind a residual, two thirds of the outputs, it also reads y and writes d_y between."""
    layers = plan(lockstep, "--model", "resnet", "--depth", "50", "--image", "224x224x3", "--outputs", "1000", "--batch", "1")
    outputs = sum(2 * layer["outputs"] for layer in layers) / 2
    forward, backward = sum(x["forward_flops"] for x in layers), sum(x["backward_flops"] for x in layers)
    return "ResNet-50, 224 x 224", "images", 1, [
        ("convolutions and their gradients", forward + backward, 6 * outputs, TENSOR, 0),
        ("batch norm and ReLU forward", 0, 3 * outputs, 1, 0),
        ("batch norm and ReLU backward", 0, (5 + 2 * 2 / 3) * outputs, 1, 0)]


def lstm(lockstep):
    """A batch of 64 sequences of 35 tokens. A layer has six products, all of one size: with its input and with the state
    before, forward, for the weight's gradient, for the other gradient. Of the twelve, six go over all steps."""
    batch, steps, words, width = 64, 35, 10000, 1024
    layers = plan(lockstep, "--model", "lstm", "--layers", "2", "--hidden", str(width), "--unroll", str(steps),
                  "--features", str(steps), "--outputs", str(words), "--batch", "1")
    parameters = sum(layer["parameters"] for layer in layers)
    both = batch * sum(flops(layers, "lstm_1", "lstm_2"))
    return "LSTM 2 x 1,024, 64 x 35 tokens", "tokens", batch * steps, [
        ("products over all steps", both / 2, 0, TENSOR, 0),
        ("steps: a product and a pass for each, two layers side by side", both / 2, 0, TENSOR,
         side_by_side(batch, steps, width)),
        ("head and loss", batch * sum(flops(layers, "head")), 6 * 2 * batch * steps * words, TENSOR, 0),
        ("norm and update", 0, 18 * parameters, 1, 0)]


def side_by_side(batch, steps, width):
    """Seconds of two layers both ways, a product and a pass for each step. They take the steps of one layer, and what
    the second one is behind: a chunk of 4 steps and the product between. Going back, the last step has no product. Tiles
    of 64 x 64 read the weights from L2, and the left side for each 64 columns; two products at once share it."""
    behind = 4
    moved = 2 * width * 4 * width + 4 * width / 64 * 2 * batch * width
    alone, together = (max(KERNEL, layers * moved / L2) for layers in (1, 2))
    one_way = (steps - behind) * together + 2 * behind * alone + (steps + behind) * KERNEL
    return 2 * (one_way + KERNEL) - alone


def mlp(lockstep):
    batch = 128
    layers = plan(lockstep, "--hidden", "512,512", "--features", "784", "--outputs", "10", "--batch", "1")
    return "MLP 784-512-512-10, 128 samples", "samples", batch, [
        ("a step's dependent kernels", batch * sum(x["forward_flops"] + x["backward_flops"] for x in layers),
         (3 * 2 + 18) * sum(x["parameters"] for x in layers), TENSOR, 22 * KERNEL)]


def rounded(rate, digits=2):
    return f"{float(f'{rate:.{digits}g}'):,.0f}"


def rows(lockstep):
    for network in (gpt, resnet, lstm, mlp):
        name, unit, units, parts = network(lockstep)
        total, shown = 0.0, name
        for part, operations, moved, peak, latency in parts:
            times = {"arithmetic": operations / peak, "memory": moved / BANDWIDTH, "latency": latency}
            limit = max(times, key=times.get)
            total += times[limit]
            measured = f"{PROFILED[part]:,g}" if part in PROFILED else "-"
            yield (f"| {shown} | {part} | {operations / 1e9:,.1f} | {moved / 1e6:,.1f} | {times[limit] * 1e6:,.1f} | {limit} | "
                   f"{measured} |")
            shown = ""
        reached = 1e6 * units / STEPS[name]
        yield (f"| | **together: {rounded(units / total)} {unit}/s at most, {rounded(reached, 3)} reached** | | | {total * 1e6:,.1f} | | "
               f"{STEPS[name]:,.1f} |")


def bytes_of_gpt(lockstep, samples=32):
    """The beginnings of the rows of a step's bytes. The gradients of all scores are written and read once, in bf16."""
    parts = {part: samples * moved for part, _, moved, _, _ in gpt(lockstep)[3] if part != "embedding"}
    parts["gradients of the scores"] = samples * 12 * 12 * 1024 * 1024 * 2 * 2
    for part, moved in parts.items():
        yield f"| {part} | {moved / 1e9:.1f} | {moved / DATA_SHEET * 1e3:.1f} | "


def main():
    table = [row + "\n" for row in rows(sys.argv[1])] + list(bytes_of_gpt(sys.argv[1]))
    if len(sys.argv) < 4:
        print("\n".join(row.rstrip("\n") for row in table))
        return
    text = open(sys.argv[3]).read()
    missing = [row for row in table if row not in text]
    for row in missing:
        print(f"not in {sys.argv[3]}: {row}")
    sys.exit(1 if missing else 0)


main()
