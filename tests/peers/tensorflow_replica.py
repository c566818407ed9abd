#!/usr/bin/env python3
"""The replica program of TensorFlow's distributed MNIST tutorial, in TensorFlow: one parameter server, two workers.

usage: tensorflow_replica.py --data FOLDER_OF_IDX_FILES [--sync | --stale N | --arrivals FOLDER] [--steps N]
                             [--seeds 1,2,3,4,5]

Prints the cross-entropy per sample on the last 5,000 training samples (the tutorial's validation), for each seed, and
median and range: beside `lockstep train --config app/examples/mnist_replica.ini`. Graph mode, as the tutorial has it:
784-100-10, Adam 0.01, 100 samples per worker, 200 steps; `--sync` is its --sync_replicas. `--stale N` is the same
training in one process, in which every gradient is of the weights of N updates before: how stale those of two real
workers are depends on how much of a worker's time its step is. `--arrivals FOLDER` counts it: each update leaves other
weights of the pixel in the middle, and these tell which update a worker's weights are of. FOLDER/arrivals-SEED is then
what `lockstep train --agree async --evaluate-every STEPS --replay FILE` repeats with gradients and weights of its own.
"""
import argparse
import collections
import functools
import gzip
import multiprocessing
import os
import pathlib
import socket
import statistics
import struct
import sys


def idx(folder, name):
    """The bytes behind an IDX file's head, packed or not."""
    for path in (pathlib.Path(folder) / name, pathlib.Path(folder) / (name + ".gz")):
        if path.exists():
            data = path.read_bytes()
            return gzip.decompress(data) if path.suffix == ".gz" else data
    sys.exit(f"{folder}: there is no {name}")


def read(folder):
    """Training images and labels, and those held back: the last 5,000."""
    import numpy

    images = numpy.frombuffer(idx(folder, "train-images-idx3-ubyte"), numpy.uint8, offset=16).reshape(-1, 784)
    labels = numpy.frombuffer(idx(folder, "train-labels-idx1-ubyte"), numpy.uint8, offset=8)
    held = images[-5000:].astype(numpy.float32) / 255, labels[-5000:].astype(numpy.int64)
    return images[:-5000], labels[:-5000], held


def stale(options, seed):
    """One process: the gradient of update k is of the weights after update k - N."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import numpy
    import tensorflow as tf

    images, labels, held = read(options.data)
    random = numpy.random.default_rng(1000 * seed)
    variables = [tf.Variable(tf.random.truncated_normal([784, 100], stddev=1.0 / 28, seed=seed)), tf.Variable(tf.zeros([100])),
                 tf.Variable(tf.random.truncated_normal([100, 10], stddev=0.1, seed=seed + 1)), tf.Variable(tf.zeros([10]))]
    optimizer = tf.compat.v1.train.AdamOptimizer(0.01)

    def loss(weights, x, y):
        hidden = tf.nn.relu(x @ weights[0] + weights[1])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=hidden @ weights[2] + weights[3]))

    order, past = random.permutation(len(images)), []
    for step in range(options.steps):
        past = (past + [[tf.identity(v) for v in variables]])[-options.stale - 1:]
        batch = order[100 * step:100 * step + 100]
        with tf.GradientTape() as tape:
            tape.watch(past[0])
            value = loss(past[0], images[batch].astype(numpy.float32) / 255, labels[batch].astype(numpy.int64))
        optimizer.apply_gradients(zip(tape.gradient(value, past[0]), variables))
    return float(loss(variables, *held)), options.steps


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def task(job, index, ports, options, seed, answers, ready, over):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import numpy
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    tf.logging.set_verbosity(tf.logging.ERROR)
    cluster = tf.train.ClusterSpec({"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{p}" for p in ports[1:]]})
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    server = tf.train.Server(cluster, job_name=job, task_index=index, config=config)
    if job == "ps":
        over.wait()
        return
    images, labels, held = read(options.data)
    random = numpy.random.default_rng(1000 * seed + index)
    workers, hidden = len(ports) - 1, 100
    tf.set_random_seed(seed)
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        hid_w = tf.Variable(tf.truncated_normal([784, hidden], stddev=1.0 / 28, seed=seed), name="hid_w")
        hid_b = tf.Variable(tf.zeros([hidden]), name="hid_b")
        sm_w = tf.Variable(tf.truncated_normal([hidden, 10], stddev=0.1, seed=seed + 1), name="sm_w")
        sm_b = tf.Variable(tf.zeros([10]), name="sm_b")
        x, y = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int64, [None])
        pulled = hid_w.read_value()
        logits = tf.nn.xw_plus_b(tf.nn.relu(tf.nn.xw_plus_b(x, pulled, hid_b)), sm_w, sm_b)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        optimizer, hooks = tf.train.AdamOptimizer(0.01), []
        if options.sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=workers,
                                                       total_num_replicas=workers, name="mnist_sync_replicas")
        if options.arrivals:
            with tf.control_dependencies([optimizer.minimize(loss)]):
                written, done = hid_w.read_value(), step.assign_add(1, read_value=True)
            train = pulled[406], written[406], done
        else:
            train, done = optimizer.minimize(loss, global_step=step), step
        if options.sync:
            hooks.append(optimizer.make_session_run_hook(index == 0, num_tokens=0))
    order, at, own, score, seen = random.permutation(len(images)), 0, 0, None, []
    with tf.train.MonitoredTrainingSession(server.target, is_chief=index == 0, hooks=hooks, config=tf.ConfigProto(
            device_filters=["/job:ps", f"/job:worker/task:{index}"])) as session:
        ready.wait()  # a worker looks for the chief's session only every 30 seconds; both must train
        while True:
            if at + 100 > len(order):
                order, at = random.permutation(len(images)), 0
            batch, at = order[at:at + 100], at + 100
            own += 1
            marks, now = session.run([train, done], {x: images[batch].astype(numpy.float32) / 255, y: labels[batch]})
            seen.append(marks)
            if now >= options.steps:
                break
        if index == 0:
            score = float(session.run_step_fn(lambda step_context: step_context.session.run(loss, {x: held[0], y: held[1]})))
        if index == 0 or options.arrivals:
            answers.put((index, score, own, seen))
    over.wait()


def keep_arrivals(file, marks, steps):
    """`marks`: a worker; weights that its gradient is of, and after its update; how many updates there have been then."""
    marks = sorted((int(count), worker, pulled.tobytes(), written.tobytes()) for worker, pulled, written, count in marks)
    made, lasts, late = {marks[0][2]: 0}, {}, []
    for update, (_, _, _, written) in enumerate(marks, 1):
        made[written] = update
    unknown = sum(pulled not in made for _, _, pulled, _ in marks)
    for update, (_, worker, pulled, _) in enumerate(marks):  # overlapping updates are counted in either order
        late.append(min(max(0, update - made.get(pulled, update)), update - lasts.get(worker, 0)))
        lasts[worker] = update + 1
    record = b"lockstep arrivals 2\n" + struct.pack("<qii", 0, 2, 0)
    late = late[:steps]  # a worker in the middle of a step at the last one makes one more
    record += b"".join(struct.pack("<HH", mark[1], updates) for mark, updates in zip(marks, late))
    check = functools.reduce(lambda check, byte: (check ^ byte) * 16777619 & 0xFFFFFFFF, record, 2166136261)  # FNV-1a
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(record + struct.pack("<HH", 0xFFFF, (check ^ check >> 16) & 0xFFFF))
    bars = ", ".join(f"{updates}: {count}" for updates, count in sorted(collections.Counter(late).items()))
    print(f"staleness (updates in between: gradients): {bars}; {unknown} unknown", flush=True)


def one(options, seed):
    context = multiprocessing.get_context("spawn")
    answers, ready, over = context.Queue(), context.Barrier(2), context.Event()
    ports = free_ports(3)
    tasks = [context.Process(target=task, args=(job, index, ports, options, seed, answers, ready, over), daemon=True)
             for job, index in (("ps", 0), ("worker", 0), ("worker", 1))]
    for each in tasks:
        each.start()
    try:
        found = sorted(answers.get(timeout=300) for _ in range(2 if options.arrivals else 1))
        if options.arrivals:
            keep_arrivals(pathlib.Path(options.arrivals) / f"arrivals-{seed}",
                          [(worker, *marks) for worker, _, _, seen in found for marks in seen], options.steps)
        return found[0][1:3]
    finally:
        over.set()
        for each in tasks:
            each.kill()
            each.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", required=True, help="folder of train-images-idx3-ubyte, train-labels-idx1-ubyte, or .gz")
    parser.add_argument("--sync", action="store_true", help="the tutorial's --sync_replicas")
    parser.add_argument("--stale", type=int, help="one process, gradients of the weights of so many updates before")
    parser.add_argument("--arrivals", metavar="FOLDER", help="count how late gradients are; their order, for Lockstep")
    parser.add_argument("--steps", type=int, default=200, help="global steps, as TensorFlow counts them")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    options = parser.parse_args()
    scores = []
    for seed in map(int, options.seeds.split(",")):
        score, own = one(options, seed) if options.stale is None else stale(options, seed)
        scores.append(score)
        print(f"seed {seed}: cross-entropy {score:.4f}; {own} gradients of worker 0", flush=True)
    print(f"median {statistics.median(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})")


if __name__ == "__main__":
    main()
