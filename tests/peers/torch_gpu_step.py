#!/usr/bin/env python3
"""Training steps in PyTorch on a GPU, beside `lockstep bench step --device gpu`.

Reads requests, one JSON object per line, from standard input, and answers each with one line, so that measurements of
two programs can take turns while this process keeps what it has compiled:

    {"layers": [784, 100, 10], "batch": 100, "optimizer": "adam", "regression": false, "precision": "bf16",
     "mode": "compile", "warmup": 20, "repeat": 200}

That is a multi-layer perceptron; "network" instead of "layers" names one of torch_networks.py, with its own numbers:

    {"network": "gpt", "layers": 12, "width": 768, "heads": 12, "context": 1024, "classes": 50257, "batch": 16, ...}

mode: eager; compile (torch.compile with CUDA graphs, "reduce-overhead"); compile-default (torch.compile without CUDA
graphs: large networks lose nothing, and compile sooner); graph (the whole step of eager kernels captured in one CUDA
graph and replayed). precision: fp32, tf32, bf16 (autocast, which makes it fp16 in cuDNN's LSTM). Of gpt:

    "attention": cudnn, flash, default (what PyTorch chooses). Without it: on a GPU the first of cuDNN, FlashAttention-2
                 and the others that takes these shapes, else default
    "padded_classes": rows of the table of words, at least "classes": 50304 for 50257 is faster (lstm takes it, too)
    "residual": "bf16" adds the residuals in bf16, as Lockstep does; without it in fp32, as autocast does

An answer repeats its request ("workload" names it, for who reads the answer) and has "step_ms", the "loss" in the end,
"prepare_s" (compiling and warming up), "peak_mb" and "reserved_mb" of the GPU's memory (what other modes of the workload
keep is in them), and of gpt the "attention" that was used; or "error", with the rest on standard error.

The optimiser is fused. The samples are resident on the GPU and the host waits only at the end: both favour PyTorch over
a program that uploads each batch and looks at each loss. --cpu: without a GPU, to test this script.
"""
import argparse
import contextlib
import gc
import json
import sys
import time
import traceback
import types

RESIDENT_BATCHES = 2
MODES = {"eager": None, "graph": None, "compile": "reduce-overhead", "compile-default": "default"}


def attention_kernels(torch, kind):
    """A context in which attention takes these kernels; "first": the fastest on H100 that takes the shapes."""
    if kind == "default":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if kind == "first":
        return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                            SDPBackend.MATH], set_priority=True)
    return sdpa_kernel({"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[kind])


def attention_used(torch, device, request, kind):
    """The name of the kernels that attention takes in that context: "cudnn", "flash", "efficient", "math"."""
    try:
        from torch.nn.attention import SDPBackend
        number = torch.bfloat16 if request["precision"] == "bf16" else torch.float32
        shape = (request["batch"], request["context"], request["heads"], request["width"] // request["heads"])
        q, k, v = (torch.empty(shape, device=device, dtype=number, requires_grad=True).transpose(1, 2)
                   for _ in range(3))
        with attention_kernels(torch, kind):
            choice = torch._fused_sdp_choice(q, k, v, is_causal=True)
        names = {int(backend): name for name, backend in SDPBackend.__members__.items()}
        return names[choice].lower().replace("_attention", "")
    except Exception as error:  # a private function: an answer without it is still an answer
        return f"unknown ({type(error).__name__})"


def make_step(torch, device, request, attention):
    """A function of no arguments that does one training step and returns the loss, on the device."""
    functional = torch.nn.functional
    batch, mode = request["batch"], request["mode"]
    on_gpu = device == "cuda"
    options = {"fused": True} if on_gpu else {}
    clip = 0
    if "network" in request:
        import torch_networks
        if "image" in request:  # PyTorch has no channels-last layout of series
            request = {**request, "as_image": len(request["image"]) == 2 and request["network"] != "series"}
        network, loss_of = torch_networks.network_of(request, device), torch_networks.loss_of
        if "image" in request:
            volumes = torch_networks.directions_of(request) == 3
            network = network.to(memory_format=torch.channels_last_3d if volumes else torch.channels_last)
        if request["network"] in torch_networks.ADAM and mode == "graph" and on_gpu:
            options["capturable"] = True
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
    parameters = list(network.parameters())

    def forward(samples, answers):
        with torch.autocast(device, torch.bfloat16, enabled=request["precision"] == "bf16"):
            return loss_of(network(samples), answers)

    if MODES[mode]:
        # A code object of its own: compiled code of other requests is neither searched nor generalised.
        forward = types.FunctionType(forward.__code__.replace(), globals(), "forward", None, forward.__closure__)
        forward = torch.compile(forward, mode=MODES[mode], dynamic=False)

    def step_on(samples, answers):
        optimizer.zero_grad(set_to_none=True)
        with attention_kernels(torch, attention):
            loss = forward(samples, answers)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        return loss.detach()

    count = 0

    def step():
        nonlocal count
        i = count % RESIDENT_BATCHES
        count += 1
        if mode == "compile" and on_gpu:
            torch.compiler.cudagraph_mark_step_begin()
        return step_on(x[i], y[i])

    if mode != "graph" or not on_gpu:
        return step

    # Warms up on another stream, then captures one step on buffers of its own, into which each batch is copied on the
    # device.
    samples, answers = x[0].clone(), y[0].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step_on(samples, answers)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step_on(samples, answers)

    def replay():
        nonlocal count
        i = count % RESIDENT_BATCHES
        count += 1
        samples.copy_(x[i])
        answers.copy_(y[i])
        graph.replay()
        return loss

    return replay


class Steps:
    """The steps of one workload, a mode each; the device's memory is for one workload at a time."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.steps, self.work, self.compiled = {}, None, False
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def forget(self):
        self.steps = {}
        gc.collect()
        if self.compiled:
            self.torch.compiler.reset()  # also releases the memory of its CUDA graphs
            gc.collect()
        self.compiled = False
        if self.device == "cuda":
            self.torch.cuda.empty_cache()

    def measure(self, request, attention):
        """The answer to a request."""
        torch, mode = self.torch, request["mode"]
        on_gpu = self.device == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        if mode not in self.steps:
            self.compiled |= MODES[mode] is not None
            self.steps[mode] = make_step(torch, self.device, request, attention)
        step = self.steps[mode]
        for _ in range(request["warmup"]):
            step()
        self.wait()
        prepared = time.perf_counter()
        for _ in range(request["repeat"]):
            step()
        self.wait()
        end = time.perf_counter()
        answer = {"step_ms": 1e3 * (end - prepared) / request["repeat"], "prepare_s": round(prepared - start, 3),
                  "loss": step().item()}
        if on_gpu:
            answer["peak_mb"] = round(torch.cuda.max_memory_allocated() / 2**20)
            answer["reserved_mb"] = round(torch.cuda.max_memory_reserved() / 2**20)  # includes that of CUDA graphs
        if request.get("network") == "gpt":
            answer["attention"] = attention_used(torch, self.device, request, attention)
        return answer

    def attempt(self, request, attention):
        """The answer, and the whole text of what failed, or "". What has failed holds no memory when this returns."""
        try:
            return self.measure(request, attention), ""
        except Exception as error:  # an unsupported mode is a gap in the table, not the end
            self.steps.pop(request["mode"], None)
            text = traceback.format_exc()
            print(text, file=sys.stderr, flush=True)
            return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}, text

    def answer(self, request):
        torch, precision = self.torch, request["precision"]
        work = {key: value for key, value in request.items() if key != "mode"}
        if work != self.work:
            self.forget()
            self.work = work
        torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
        torch.backends.cudnn.allow_tf32 = precision != "fp32"
        first = "first" if self.device == "cuda" and request.get("network") == "gpt" else "default"
        attention = request.get("attention", first)
        others = set(self.steps) - {request["mode"]}
        answer, failure = self.attempt(request, attention)
        if "OutOfMemoryError" in failure and others:  # the other modes hold memory
            self.forget()
            answer, failure = self.attempt(request, attention)
        if attention == "first" and any(word in failure.lower() for word in ("cudnn", "scaled_dot_product")):
            answer, _ = self.attempt(request, "default")
        if self.device == "cuda":
            torch.cuda.empty_cache()  # the other program takes its turn on the same GPU
        return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    import torch
    device = "cpu" if arguments.cpu else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_gpu_step.py: this PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True  # convolutions: the quickest of cuDNN's algorithms, found in the first steps
    print(json.dumps({"torch": torch.__version__, "device": device}), flush=True)
    steps = Steps(torch, device)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({**request, **steps.answer(request)}), flush=True)


if __name__ == "__main__":
    main()
