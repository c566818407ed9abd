#!/usr/bin/env python3
"""A training step in JAX, of a multi-layer perceptron or of a network of torch_networks.py, for a comparison with
`lockstep bench step`: the arguments and the JSON line of torch_step.py, for one rank on one thread.

    jax_step.py --layers 784,512,512,10 --batch 128
    jax_step.py --network gpt-256 --batch 16 --precision bf16

The whole step is one jitted function whose parameters and state are donated. With --precision bf16 the step computes in
bf16 what autocast does: products and convolutions, with fp32 weights and losses. The samples are random and resident.
"""
import argparse
import json
import math
import os
import resource
import statistics
import sys
import time

ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1",
               "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
RESIDENT_BATCHES = 2
# The networks of torch_networks.py (which this does not import: it needs PyTorch).
NAMED = {
    "cnn": {"network": "cnn", "image": (24, 24, 3), "classes": 10},
    "resnet-20": {"network": "resnet", "image": (32, 32, 3), "classes": 10, "blocks": (3, 3, 3)},
    "lstm-200": {"network": "lstm", "layers": 2, "hidden": 200, "unroll": 20, "dropout": 0.0, "classes": 10000},
    "lstm-650": {"network": "lstm", "layers": 2, "hidden": 650, "unroll": 35, "dropout": 0.5, "classes": 10000},
    "gpt-256": {"network": "gpt", "layers": 4, "width": 256, "heads": 4, "context": 128, "classes": 256},
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=list(NAMED), help="instead of --layers")
    parser.add_argument("--layers", default="784,100,10", help="input, hidden ..., output")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--optimizer", default="sgd", choices=["sgd", "adam"])
    parser.add_argument("--regression", action="store_true")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=200)
    return parser.parse_args()


def main():
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):  # read when the process starts
        os.environ.update(ENVIRONMENT)
        os.execv(sys.executable, [sys.executable] + sys.argv)
    arguments = parse_arguments()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    import jax
    import jax.numpy as jnp
    import numpy

    request = {**NAMED[arguments.network]} if arguments.network else {"network": "mlp"}
    compute = jnp.bfloat16 if arguments.precision == "bf16" else jnp.float32
    draws = numpy.random.default_rng(1)
    parameters = {}

    def parameter(name, shape, fan_in=None, value=None):
        parameters[name] = (numpy.full(shape, value, numpy.float32) if value is not None else
                            (draws.standard_normal(shape) / math.sqrt(fan_in or shape[0])).astype(numpy.float32))

    def product(a, b):
        return jnp.matmul(a.astype(compute), b.astype(compute))

    def dense(p, name, x):
        return product(x, p[name + "/w"]) + p[name + "/b"].astype(compute)

    def add_dense(name, inputs, outputs):
        parameter(name + "/w", (inputs, outputs))
        parameter(name + "/b", (outputs,), value=0)

    def convolution(x, w, stride=1):
        return jax.lax.conv_general_dilated(x.astype(compute), w.astype(compute), (stride, stride), "SAME",
                                            dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def cross_entropy(outputs, answers):
        logits = outputs.astype(jnp.float32).reshape(-1, outputs.shape[-1])
        chosen = jnp.take_along_axis(logits, answers.reshape(-1, 1), axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - chosen)

    def mlp():
        widths = [int(width) for width in arguments.layers.split(",")]
        for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
            add_dense(f"dense_{i}", inputs, outputs)

        def loss(p, x, y, _):
            for i in range(len(widths) - 1):
                x = dense(p, f"dense_{i}", x if i == 0 else jax.nn.relu(x))
            return jnp.mean((x.astype(jnp.float32) - y)**2) if arguments.regression else cross_entropy(x, y)

        x = draws.standard_normal((RESIDENT_BATCHES, arguments.batch, widths[0]), numpy.float32)
        if arguments.regression:
            return loss, x, draws.standard_normal((RESIDENT_BATCHES, arguments.batch, widths[-1]), numpy.float32)
        return loss, x, draws.integers(widths[-1], size=(RESIDENT_BATCHES, arguments.batch))

    def images():
        shape = (RESIDENT_BATCHES, arguments.batch, *request["image"])
        return (draws.standard_normal(shape, numpy.float32),
                draws.integers(request["classes"], size=(RESIDENT_BATCHES, arguments.batch)))

    def cnn():
        height, width, channels = request["image"]
        parameter("conv_1", (5, 5, channels, 64), 25 * channels)
        parameter("conv_2", (5, 5, 64, 64), 25 * 64)
        for name in ("conv_1/b", "conv_2/b"):
            parameter(name, (64,), value=0)
        add_dense("dense_1", 64 * (height // 4) * (width // 4), 384)
        add_dense("dense_2", 384, 192)
        add_dense("dense_3", 192, request["classes"])

        def pool(x):
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

        def norm(x):
            squares = jax.lax.reduce_window(x.astype(jnp.float32)**2, 0.0, jax.lax.add, (1, 1, 1, 9), (1, 1, 1, 1), "SAME")
            return (x * (1 + 0.001 / 9 * squares)**-0.75).astype(x.dtype)

        def loss(p, x, y, _):
            x = norm(pool(jax.nn.relu(convolution(x, p["conv_1"]) + p["conv_1/b"].astype(compute))))
            x = pool(norm(jax.nn.relu(convolution(x, p["conv_2"]) + p["conv_2/b"].astype(compute))))
            x = jax.nn.relu(dense(p, "dense_1", x.reshape(x.shape[0], -1)))
            return cross_entropy(dense(p, "dense_3", jax.nn.relu(dense(p, "dense_2", x))), y)

        return loss, *images()

    def resnet():
        blocks = [(f"stage_{stage}/{block}", 16 << stage, 2 if stage > 0 and block == 0 else 1)
                  for stage, count in enumerate(request["blocks"]) for block in range(count)]

        def add_convolution(name, inputs, outputs):
            parameter(name, (3, 3, inputs, outputs), 9 * inputs)
            parameter(name + "/scale", (outputs,), value=1)
            parameter(name + "/shift", (outputs,), value=0)

        add_convolution("first", request["image"][2], 16)
        inputs = 16
        for name, channels, _ in blocks:
            add_convolution(name + "/1", inputs, channels)
            add_convolution(name + "/2", channels, channels)
            inputs = channels
        add_dense("out", inputs, request["classes"])

        def normalized(p, name, x, stride=1):
            x = convolution(x, p[name], stride).astype(jnp.float32)
            mean = jnp.mean(x, (0, 1, 2))
            variance = jnp.mean(x**2, (0, 1, 2)) - mean**2
            gain = p[name + "/scale"] * jax.lax.rsqrt(variance + 1e-5)
            return (x * gain + (p[name + "/shift"] - mean * gain)).astype(compute)

        def loss(p, x, y, _):
            x = jax.nn.relu(normalized(p, "first", x))
            for name, channels, stride in blocks:
                shortcut = x
                if stride > 1:
                    more = (channels - x.shape[-1]) // 2
                    shortcut = jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (more, more)))
                branch = normalized(p, name + "/2", jax.nn.relu(normalized(p, name + "/1", x, stride)))
                x = jax.nn.relu(branch + shortcut)
            return cross_entropy(dense(p, "out", jnp.mean(x, (1, 2))), y)

        return loss, *images()

    def tokens(length):
        shape = (RESIDENT_BATCHES, arguments.batch, length)
        return draws.integers(request["classes"], size=shape), draws.integers(request["classes"], size=shape)

    def lstm():
        hidden, rate = request["hidden"], request["dropout"]
        parameter("words", (request["classes"], hidden), 1)
        for i in range(request["layers"]):
            add_dense(f"in_{i}", hidden, 4 * hidden)
            parameter(f"recurrent_{i}", (hidden, 4 * hidden))
        add_dense("out", hidden, request["classes"])

        def dropout(key, x):
            if rate == 0:
                return x
            return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0).astype(x.dtype)

        def loss(p, x, y, key):
            keys = jax.random.split(key, request["layers"] + 1)
            x = dropout(keys[-1], p["words"][x.T])
            for i in range(request["layers"]):
                z = dense(p, f"in_{i}", x)
                recurrent = p[f"recurrent_{i}"].astype(compute)

                def step(state, gates):
                    h, c = state
                    gates = (gates + product(h, recurrent)).astype(jnp.float32)
                    a, b, f, o = jnp.split(gates, 4, axis=1)
                    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(a) * jnp.tanh(b)
                    h = (jax.nn.sigmoid(o) * jnp.tanh(c)).astype(compute)
                    return (h, c), h

                zero = jnp.zeros((z.shape[1], hidden))
                x = dropout(keys[i], jax.lax.scan(step, (zero.astype(compute), zero), z)[1])
            return cross_entropy(dense(p, "out", x.transpose(1, 0, 2)), y)

        return loss, *tokens(request["unroll"])

    def gpt():
        width, heads, context = request["width"], request["heads"], request["context"]
        parameter("words", (request["classes"], width), 2500)
        parameter("places", (context, width), 2500)
        norms = [f"{i}/norm_{j}" for i in range(request["layers"]) for j in (1, 2)] + ["norm"]
        for name in norms:
            parameter(name + "/scale", (width,), value=1)
            parameter(name + "/shift", (width,), value=0)
        for i in range(request["layers"]):
            add_dense(f"{i}/joint", width, 3 * width)
            add_dense(f"{i}/out", width, width)
            add_dense(f"{i}/up", width, 4 * width)
            add_dense(f"{i}/down", 4 * width, width)
        visible = numpy.tril(numpy.ones((context, context), bool))

        def norm(p, name, x):
            mean = jnp.mean(x, -1, keepdims=True)
            variance = jnp.mean((x - mean)**2, -1, keepdims=True)
            return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p[name + "/scale"] + p[name + "/shift"]

        def attention(p, i, x):
            samples = x.shape[0]
            q, k, v = (part.reshape(samples, context, heads, -1).transpose(0, 2, 1, 3)
                       for part in jnp.split(dense(p, f"{i}/joint", x), 3, axis=2))
            scores = product(q, k.transpose(0, 1, 3, 2)).astype(jnp.float32) / math.sqrt(width // heads)
            y = product(jax.nn.softmax(jnp.where(visible, scores, -jnp.inf)), v)
            return dense(p, f"{i}/out", y.transpose(0, 2, 1, 3).reshape(samples, context, width))

        def loss(p, x, y, _):
            x = p["words"][x] + p["places"]
            for i in range(request["layers"]):
                x = x + attention(p, i, norm(p, f"{i}/norm_1", x))
                x = x + dense(p, f"{i}/down", jax.nn.gelu(dense(p, f"{i}/up", norm(p, f"{i}/norm_2", x))))
            return cross_entropy(product(norm(p, "norm", x), p["words"].T), y)

        return loss, *tokens(context)

    loss_of, x, y = {"mlp": mlp, "cnn": cnn, "resnet": resnet, "lstm": lstm, "gpt": gpt}[request["network"]]()
    clip = {"gpt": 1.0, "lstm": 5.0}.get(request["network"], 0)
    adam = arguments.optimizer == "adam" or request["network"] == "gpt"
    nesterov = request["network"] == "resnet"
    rate = 1e-5 if arguments.network else 0.001 if adam else 0.01
    beta_1, beta_2, decay = (0.9, 0.99, 0.1) if request["network"] == "gpt" else (0.9, 0.999, 0)

    def step(p, first, second, number, x, y, key):
        value, g = jax.value_and_grad(loss_of)(p, x, y, key)
        each = jax.tree_util.tree_map
        if clip:
            norm = jnp.sqrt(sum(jnp.sum(v**2) for v in jax.tree_util.tree_leaves(g)))
            g = each(lambda v: v * jnp.minimum(1, clip / norm), g)
        if nesterov:
            g = each(lambda v, w: v + 1e-4 * w, g, p)
            first = each(lambda m, v: 0.9 * m + v, first, g)
            return each(lambda w, m, v: w - rate * (v + 0.9 * m), p, first, g), first, second, value
        if not adam:
            return each(lambda w, v: w - rate * v, p, g), first, second, value
        first = each(lambda m, v: beta_1 * m + (1 - beta_1) * v, first, g)
        second = each(lambda m, v: beta_2 * m + (1 - beta_2) * v**2, second, g)
        c_1, c_2 = 1 - beta_1**number, 1 - beta_2**number
        return each(lambda w, m, v: w - rate * (m / c_1 / (jnp.sqrt(v / c_2) + 1e-8) + decay * w), p, first,
                    second), first, second, value

    p = {name: jnp.asarray(value) for name, value in parameters.items()}
    zeros = lambda needed: {name: jnp.zeros_like(value) for name, value in p.items()} if needed else {}
    first, second = zeros(adam or nesterov), zeros(adam)
    xs, ys = [jnp.asarray(each) for each in x], [jnp.asarray(each) for each in y]
    keys = list(jax.random.split(jax.random.key(1), arguments.warmup + arguments.repeat))
    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    seconds, processor = [], 0.0
    for i in range(arguments.warmup + arguments.repeat):
        if i == arguments.warmup:
            processor = time.process_time()
        start = time.perf_counter()
        p, first, second, value = jitted(p, first, second, i + 1.0, xs[i % 2], ys[i % 2], keys[i])
        value.block_until_ready()
        seconds.append(time.perf_counter() - start)
    processor = time.process_time() - processor
    if not math.isfinite(float(value)):
        sys.exit("the loss is not finite")
    median = statistics.median(seconds[arguments.warmup:])
    print(json.dumps({
        "peer": "jax " + jax.__version__, "precision": arguments.precision, "world": 1, "step_ms": 1e3 * median,
        "step_ms_min": 1e3 * min(seconds[arguments.warmup:]), "processor_ms": 1e3 * processor / arguments.repeat,
        "samples_per_second": arguments.batch / median, "loss": float(value),
        "peak_resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)


if __name__ == "__main__":
    main()
