#!/usr/bin/env python3
"""A training step in PyTorch, of a multi-layer perceptron or of a network of torch_networks.py, for a comparison with
`lockstep bench step`.

    torch_step.py --layers 784,512,512,10 --batch 128 --optimizer sgd --ranks 2
    torch_step.py --network resnet-20 --batch 64 --ranks 2 --channels-last

One process per rank, one thread each; more than one rank is DistributedDataParallel over gloo on this host. The
samples are random and resident in memory, as in `lockstep bench step --input memory`. Prints one JSON line.
"""
import argparse
import json
import os
import resource
import socket
import statistics
import sys
import time

# By default glibc returns the memory of every step to the kernel and faults it in again: not PyTorch's fault, and up to
# twice as slow. These settings are read when the process starts.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26)}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
RESIDENT_BATCHES = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", help="one of torch_networks.py instead: cnn, resnet-20, lstm-200, unet-2d ...")
    parser.add_argument("--channels-last", action="store_true", help="for networks of images, volumes and spectra")
    parser.add_argument("--layers", default="784,100,10", help="input, hidden ..., output")
    parser.add_argument("--batch", type=int, default=100, help="samples per rank")
    parser.add_argument("--optimizer", default="sgd", choices=["sgd", "adam"])
    parser.add_argument("--regression", action="store_true")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="bf16: under autocast")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=200)
    return parser.parse_args()


def run_rank(rank, arguments, port, results):
    import torch
    import torch.distributed as distributed
    import torch.nn.functional as functional

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
    clip = 0
    if arguments.network:
        import torch_networks
        torch.set_flush_denormal(True)
        network, loss_of_batch, make, clip = torch_networks.make(arguments.network, arguments.batch,
                                                                  channels_last=arguments.channels_last)
    else:
        widths = [int(width) for width in arguments.layers.split(",")]
        modules = []
        for inputs, outputs in zip(widths, widths[1:]):
            modules += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        network = torch.nn.Sequential(*modules[:-1])
    if arguments.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        distributed.init_process_group("gloo", rank=rank, world_size=arguments.ranks)
        network = torch.nn.parallel.DistributedDataParallel(network)
    if not arguments.network:
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[arguments.optimizer]
        make = lambda parameters: kind(parameters, lr=0.01 if arguments.optimizer == "sgd" else 0.001)
        x = torch.randn(RESIDENT_BATCHES, arguments.batch, widths[0])
        if arguments.regression:
            y, loss_of = torch.randn(RESIDENT_BATCHES, arguments.batch, widths[-1]), functional.mse_loss
        else:
            y, loss_of = torch.randint(widths[-1], (RESIDENT_BATCHES, arguments.batch)), functional.cross_entropy
        loss_of_batch = lambda module, i: loss_of(module(x[i]), y[i])
    optimizer = make(network.parameters())
    if arguments.compile:
        network = torch.compile(network)

    def step(i):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
            loss = loss_of_batch(network, i % RESIDENT_BATCHES)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimizer.step()

    for i in range(arguments.warmup):
        step(i)
    if arguments.ranks > 1:
        distributed.barrier()
    seconds = []
    processor = time.process_time()
    for i in range(arguments.repeat):
        start = time.perf_counter()
        step(i)
        seconds.append(time.perf_counter() - start)
    processor = time.process_time() - processor
    if rank == 0:
        median = statistics.median(seconds)
        line = json.dumps({
            "peer": "torch " + torch.__version__, "precision": arguments.precision, "world": arguments.ranks, "step_ms": 1e3 * median,
            "step_ms_min": 1e3 * min(seconds), "processor_ms": 1e3 * processor / arguments.repeat,
            "samples_per_second": arguments.batch * arguments.ranks / median,
            "peak_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})
        print(line, flush=True)
    if arguments.ranks > 1:
        distributed.barrier()
        os._exit(0)  # gloo's threads can hang an orderly exit


def main():
    wanted = {**KEEP_MEMORY, **ONE_THREAD}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable] + sys.argv)
    arguments = parse_arguments()
    if arguments.ranks == 1:
        return run_rank(0, arguments, 0, None)
    import torch.multiprocessing as multiprocessing
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.spawn(run_rank, args=(arguments, port, None), nprocs=arguments.ranks, join=False)
    while not context.join(timeout=1):
        pass


if __name__ == "__main__":
    main()
