#!/usr/bin/env python3
"""Training steps in PyTorch on a GPU, beside `lockstep bench step --device gpu`.

Reads requests, one JSON object per line, from standard input, and answers each with one line, so that measurements of
two programs can take turns while this process keeps what it has compiled:

    {"layers": [784, 100, 10], "batch": 100, "optimizer": "adam", "regression": false, "precision": "bf16",
     "mode": "compile", "warmup": 20, "repeat": 200}

That is a multi-layer perceptron; "network" instead of "layers" names one of torch_networks.py, with its own numbers:

    {"network": "gpt", "layers": 12, "width": 768, "heads": 12, "context": 1024, "classes": 50257, "batch": 16, ...}

mode: eager; compile (torch.compile with CUDA graphs, "reduce-overhead"); graph (the whole step of eager kernels captured
in one CUDA graph and replayed). precision: fp32, tf32, bf16 (autocast). The optimiser is fused. The samples are resident
on the GPU and the host waits only at the end: both favour PyTorch over a program that uploads each batch and looks at
each loss. --cpu: without a GPU, to test this script.
"""
import argparse
import gc
import json
import sys
import time
import types

RESIDENT_BATCHES = 8


def make_step(torch, device, request):
    """A function of no arguments that does one training step."""
    functional = torch.nn.functional
    batch, mode = request["batch"], request["mode"]
    on_gpu = device == "cuda"
    options = {"fused": True} if on_gpu else {}
    clip = 0
    if "network" in request:
        import torch_networks
        network, loss_of = torch_networks.network_of(request, device), torch_networks.loss_of
        if "image" in request:
            network = network.to(memory_format=torch.channels_last)
        optimizer = torch_networks.optimizer_of(request, network.parameters(), **options)
        x, y = torch_networks.batches_of(request, RESIDENT_BATCHES, device, channels_last=True)
        clip = torch_networks.clip_of(request)
    else:
        widths = request["layers"]
        modules = []
        for inputs, outputs in zip(widths, widths[1:]):
            modules += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        network = torch.nn.Sequential(*modules[:-1]).to(device)
        if request["optimizer"] == "adam":
            optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, **options,
                                         **({"capturable": True} if mode == "graph" and on_gpu else {}))
        else:
            optimizer = torch.optim.SGD(network.parameters(), lr=1e-2, **options)
        x = torch.randn(RESIDENT_BATCHES, batch, widths[0], device=device)
        if request["regression"]:
            y, loss_of = torch.randn(RESIDENT_BATCHES, batch, widths[-1], device=device), functional.mse_loss
        else:
            y, loss_of = torch.randint(widths[-1], (RESIDENT_BATCHES, batch), device=device), functional.cross_entropy

    def forward(samples, answers):
        with torch.autocast(device, torch.bfloat16, enabled=request["precision"] == "bf16"):
            return loss_of(network(samples), answers)

    if mode == "compile":
        # A code object of its own: what was compiled for other requests is neither searched nor generalised.
        forward = types.FunctionType(forward.__code__.replace(), globals(), "forward", None, forward.__closure__)
        forward = torch.compile(forward, mode="reduce-overhead", dynamic=False)

    def step_on(samples, answers):
        optimizer.zero_grad(set_to_none=True)
        loss = forward(samples, answers)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimizer.step()

    count = 0

    def step():
        nonlocal count
        i = count % RESIDENT_BATCHES
        count += 1
        if mode == "compile" and on_gpu:
            torch.compiler.cudagraph_mark_step_begin()
        step_on(x[i], y[i])

    if mode != "graph" or not on_gpu:
        return step

    # Warm up beside, then capture one step on buffers of its own, into which each batch is copied on the device.
    samples, answers = x[0].clone(), y[0].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step_on(samples, answers)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step_on(samples, answers)

    def replay():
        nonlocal count
        i = count % RESIDENT_BATCHES
        count += 1
        samples.copy_(x[i])
        answers.copy_(y[i])
        graph.replay()

    return replay


def measure(torch, device, step, warmup, repeat):
    """Milliseconds per step."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(warmup):
        step()
    wait()
    start = time.perf_counter()
    for _ in range(repeat):
        step()
    wait()
    return 1e3 * (time.perf_counter() - start) / repeat


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    import torch
    device = "cpu" if arguments.cpu else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_gpu_step.py: this PyTorch sees no GPU")
    print(json.dumps({"torch": torch.__version__, "device": device}), flush=True)
    steps, current = {}, None
    for line in sys.stdin:
        request = json.loads(line)
        mode = request["mode"]
        work = {key: value for key, value in request.items() if key != "mode"}
        if work != current:  # the device's memory is for one workload at a time
            steps, current = {}, work
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
        torch.set_float32_matmul_precision("high" if request["precision"] == "tf32" else "highest")
        try:
            if mode not in steps:
                steps[mode] = make_step(torch, device, request)
            answer = {"step_ms": measure(torch, device, steps[mode], request["warmup"], request["repeat"])}
        except Exception as error:  # a mode that this PyTorch cannot do is a gap in the table, not the end
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
