#!/usr/bin/env python3
"""PyTorch's asynchronous checkpoints, for a comparison with `lockstep bench checkpoint`.

    torch_checkpoint.py --state-mb 1000 --ranks 1 --folder runs

The state is a linear layer's parameters and two moments (Adam), of as many bytes as `lockstep bench checkpoint
--optimizer adam` has. It is saved by torch.distributed.checkpoint.async_save, and steps of the same layer are made until
it is written. More than one rank is a process group over gloo; each saves what DistributedDataParallel would, the same
state, of which torch.distributed.checkpoint writes every tensor once. Prints one JSON line: how long async_save kept the
training, and how long until the checkpoint was written.
"""
import argparse
import json
import math
import os
import shutil
import socket
import statistics
import tempfile
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state-mb", type=float, default=256, help="10^6 bytes")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16, help="samples per rank")
    parser.add_argument("--folder", default=".")
    return parser.parse_args()


def synced(folder):
    """Flushes what was written: asynchronous saving ends with the writes."""
    for name in os.listdir(folder):
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def run_rank(rank, arguments, port, folder, results):
    import torch
    import torch.distributed as distributed
    import torch.distributed.checkpoint as checkpoint

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=arguments.ranks)
    saving = distributed.new_group(backend="gloo")  # its thread communicates beside the steps
    width = round(math.sqrt(arguments.state_mb * 1e6 / 12))
    network = torch.nn.Linear(width, width)
    optimizer = torch.optim.Adam(network.parameters())
    x, y = torch.randn(arguments.batch, width), torch.randn(arguments.batch, width)

    def step():
        begin = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(network(x), y).backward()
        for parameter in network.parameters():
            if arguments.ranks > 1:
                distributed.all_reduce(parameter.grad)
        optimizer.step()
        return time.perf_counter() - begin

    def state():
        return {"network": network.state_dict(), "optimizer": optimizer.state_dict()}

    step()
    stalls, seconds, alone, beside = [], [], [], []
    for number in range(arguments.repeat + 1):
        alone += [step() for _ in range(5)]
        distributed.barrier()
        target = os.path.join(folder, str(number))
        begin = time.perf_counter()
        future = checkpoint.async_save(state(), checkpoint_id=target, process_group=saving)
        stall = time.perf_counter() - begin
        during = []
        waiting = torch.ones(1)
        while waiting.item() > 0:  # the same number of steps on every rank
            during.append(step())
            waiting.fill_(0.0 if future.done() else 1.0)
            distributed.all_reduce(waiting)
        future.result()
        if rank == 0:
            synced(target)
        if number > 0:  # the first one starts its thread
            seconds.append(time.perf_counter() - begin)
            stalls.append(stall)
            beside += during
        distributed.barrier()
        if rank == 0:
            shutil.rmtree(target)
    if rank == 0:
        bytes_of_state = sum(tensor.numel() * 4 for tensor in network.state_dict().values()) * 3
        results.put({"torch": torch.__version__, "ranks": arguments.ranks, "bytes": bytes_of_state,
                     "stall_seconds": statistics.median(stalls), "stall_seconds_max": max(stalls),
                     "stall_seconds_per_gb": statistics.median(stalls) / (bytes_of_state / 1e9),
                     "seconds": statistics.median(seconds), "step_ms_alone": 1e3 * statistics.median(alone),
                     "step_ms_beside": 1e3 * statistics.median(beside)})
    distributed.destroy_process_group()


def main():
    arguments = parse_arguments()
    import torch.multiprocessing as processes

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="torch-checkpoint-", dir=arguments.folder)
    try:
        results = processes.get_context("spawn").SimpleQueue()
        processes.spawn(run_rank, (arguments, port, folder, results), nprocs=arguments.ranks)
        print(json.dumps(results.get()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
