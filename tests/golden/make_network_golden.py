#!/usr/bin/env python3
"""Writes networks.txt beside this file: 50 training steps of each kind of network by PyTorch, for
tests/model/network_golden_test.cpp to repeat, and the loss of an evaluation after them.

As in make_golden.py, weights and batches come from an integer hash that both sides compute exactly, and PyTorch runs in
float64. Each parameter is listed with the scale and the offset of its numbers: float32(offset + values(stream, count,
scale)). Only plain operations of torch.nn.functional are used, so that any version does (1.13 made the file in the
tree). Rates and scales are such that fp32 stays near: PyTorch's own fp32 run differs by 2e-6 at most. Batch norm over
few values makes a chaotic system otherwise."""

import math
import pathlib

import numpy
import torch
import torch.nn.functional as F

STEPS, BATCHES, MOMENTUM_OF_STATISTICS = 50, 10, 0.1
torch.set_default_dtype(torch.float64)


def mixed(x):
    """A 32-bit integer hash: every bit of x touches every bit of the result."""
    x = numpy.uint64(x) if numpy.isscalar(x) else x
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> numpy.uint64(shift))) * numpy.uint64(factor)) & numpy.uint64(0xFFFFFFFF)
    return x ^ (x >> numpy.uint64(16))


def words(stream, count):
    return mixed(mixed(stream) ^ numpy.arange(count, dtype=numpy.uint64))


def values(stream, shape, scale, offset=0.0):
    """float32(offset + numbers in [-scale, scale))"""
    whole = (words(stream, math.prod(shape)) >> numpy.uint64(8)).astype(numpy.int64) - 2**23
    numbers = (offset + whole * 2.0**-23 * scale).astype(numpy.float32).astype(numpy.float64)
    return torch.from_numpy(numbers).reshape(shape)


def integers(stream, shape, below):
    return torch.from_numpy((words(stream, math.prod(shape)) % numpy.uint64(below)).astype(numpy.int64)).reshape(shape)


def power_of_two(x):
    return 2.0 ** round(math.log2(x))


class Parameters:
    """In the order of Lockstep's table; the stream of parameter i is 1 + i."""

    def __init__(self):
        self.entries = []

    def add(self, name, shape, scale, offset=0.0, decayed=False, trained=True):
        tensor = values(1 + len(self.entries), shape, scale, offset).requires_grad_(trained)
        self.entries.append((name, scale, offset, decayed, trained, tensor))
        return tensor

    def matrix(self, name, shape, decayed=True):
        fan_in = math.prod(shape[:-1])
        return self.add(name, shape, power_of_two(math.sqrt(3.0 / fan_in)), decayed=decayed)

    def bias(self, name, width):
        return self.add(name, (width,), 0.125)

    def norm(self, name, width, scale=1.0):
        return self.add(f"{name}/scale", (width,), 0.25 * scale, scale), self.add(f"{name}/shift", (width,), 0.125)

    def trained(self, decayed):
        return [entry[5] for entry in self.entries if entry[4] and entry[3] == decayed]


class Cnn:
    options = dict(name="cnn", image="24 24 3", outputs=10, batch=4, optimizer="sgd", rate=0.1, l2=0.004)

    def __init__(self, p):
        shapes = [("conv_1", (5, 5, 3, 64)), ("conv_2", (5, 5, 64, 64)), ("dense_1", (6 * 6 * 64, 384)),
                  ("dense_2", (384, 192)), ("dense_3", (192, 10))]
        self.layers = [(p.matrix(f"{name}/weight", shape, decayed=name in ("dense_1", "dense_2")),
                        p.bias(f"{name}/bias", shape[-1])) for name, shape in shapes]

    def logits(self, x, training):
        def convolution(x, layer):
            return torch.relu(F.conv2d(x, layer[0].permute(3, 2, 0, 1), layer[1], padding=2))

        def pool(x):  # 3x3/2, "SAME": the odd row and column are at the bottom and right
            return F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=-math.inf), 3, 2)

        def normalized(x):  # PyTorch divides alpha by the number of channels
            return F.local_response_norm(x, 9, alpha=0.001, beta=0.75, k=1.0)

        x = normalized(pool(convolution(x.permute(0, 3, 1, 2), self.layers[0])))
        x = pool(normalized(convolution(x, self.layers[1])))
        x = x.permute(0, 2, 3, 1).flatten(1)
        for weight, bias in self.layers[2:4]:
            x = torch.relu(x @ weight + bias)
        return x @ self.layers[4][0] + self.layers[4][1]


class ResNet:
    options = dict(name="resnet", image="8 8 3", depth=20, outputs=10, batch=8, optimizer="nesterov", rate=0.001,
                   l2=0.0001)

    def __init__(self, p):
        self.stem = self.normalized_convolution(p, "stem", 3, 16)
        self.blocks = []
        channels = 16
        for stage, width in enumerate((16, 32, 64), 1):
            for block in range(1, 4):
                name = f"stage_{stage}/block_{block}"
                self.blocks.append((self.normalized_convolution(p, f"{name}/conv_1", channels, width),
                                    self.normalized_convolution(p, f"{name}/conv_2", width, width, scale=0.25),
                                    2 if width != channels else 1))
                channels = width
        self.dense = p.matrix("dense/weight", (64, 10)), p.bias("dense/bias", 10)

    @staticmethod
    def normalized_convolution(p, name, inputs, outputs, scale=1.0):
        weight = p.matrix(f"{name}/weight", (3, 3, inputs, outputs))
        scale, shift = p.norm(f"{name}/norm", outputs, scale)
        mean = p.add(f"{name}/norm/running_mean", (outputs,), 0.0, 0.0, trained=False)
        variance = p.add(f"{name}/norm/running_variance", (outputs,), 0.0, 1.0, trained=False)
        return weight, scale, shift, mean, variance

    def logits(self, x, training):
        def normalized(x, layer, stride=1):
            weight, scale, shift, mean, variance = layer
            x = F.conv2d(x, weight.permute(3, 2, 0, 1), stride=stride, padding=1)
            return F.batch_norm(x, mean, variance, scale, shift, training, MOMENTUM_OF_STATISTICS, 1e-5)

        x = torch.relu(normalized(x.permute(0, 3, 1, 2), self.stem))
        for first, second, stride in self.blocks:
            shortcut = x
            if stride == 2:
                added = x.shape[1] // 2
                shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, added, added))
            y = torch.relu(normalized(x, first, stride))
            x = torch.relu(normalized(y, second) + shortcut)
        return x.mean((2, 3)) @ self.dense[0] + self.dense[1]


class Lstm:
    options = dict(name="lstm", context=8, outputs=50, hidden=32, layers=2, batch=4, optimizer="sgd", rate=4.0,
                   clip_norm=0.2)

    def __init__(self, p):
        self.table = p.matrix("embedding/tokens", (50, 32))
        self.layers = [(p.matrix(f"lstm_{i}/input", (32, 128)), p.matrix(f"lstm_{i}/recurrent", (32, 128)),
                        p.bias(f"lstm_{i}/bias", 128)) for i in (1, 2)]
        self.head = p.matrix("head/weight", (32, 50)), p.bias("head/bias", 50)
        self.state = None

    def logits(self, tokens, training):
        zero = torch.zeros(tokens.shape[0], 32)
        state = self.state if training and self.state else [(zero, zero)] * 2
        outputs = []
        for x in self.table[tokens].unbind(1):
            following = []
            for (h, c), (weight, recurrent, bias) in zip(state, self.layers):
                i, f, g, o = (x @ weight + h @ recurrent + bias).chunk(4, 1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                following.append((h, c))
                x = h
            state = following
            outputs.append(x)
        if training:
            self.state = [(h.detach(), c.detach()) for h, c in state]
        return torch.stack(outputs, 1) @ self.head[0] + self.head[1]


class Gpt:
    options = dict(name="gpt", context=16, outputs=50, width=32, heads=4, layers=2, batch=4, optimizer="adamw",
                   rate=0.002, beta2=0.99, weight_decay=0.1, clip_norm=1.0)

    def __init__(self, p):
        self.table, self.positions = p.matrix("embedding/tokens", (50, 32)), p.matrix("embedding/positions", (16, 32))
        self.blocks = [dict(norm_1=p.norm(f"block_{i}/norm_1", 32),
                            joint=self.dense(p, f"block_{i}/attention/joint", 32, 96),
                            output=self.dense(p, f"block_{i}/attention/output", 32, 32),
                            norm_2=p.norm(f"block_{i}/norm_2", 32),
                            expand=self.dense(p, f"block_{i}/feed_forward/expand", 32, 128),
                            contract=self.dense(p, f"block_{i}/feed_forward/contract", 128, 32)) for i in (1, 2)]
        self.norm = p.norm("norm", 32)

    @staticmethod
    def dense(p, name, inputs, outputs):
        return p.matrix(f"{name}/weight", (inputs, outputs)), p.bias(f"{name}/bias", outputs)

    def logits(self, tokens, training):
        def dense(x, layer):
            return x @ layer[0] + layer[1]

        def norm(x, layer):
            return F.layer_norm(x, (32,), layer[0], layer[1], 1e-5)

        def gelu(x):
            return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

        samples, context = tokens.shape
        mask = torch.full((context, context), -math.inf).triu(1)
        x = self.table[tokens] + self.positions
        for block in self.blocks:
            q, k, v = (part.reshape(samples, context, 4, 8).transpose(1, 2)
                       for part in dense(norm(x, block["norm_1"]), block["joint"]).chunk(3, 2))
            attended = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(8) + mask, 3) @ v
            x = x + dense(attended.transpose(1, 2).reshape(samples, context, 32), block["output"])
            x = x + dense(gelu(dense(norm(x, block["norm_2"]), block["expand"])), block["contract"])
        return norm(x, self.norm) @ self.table.T


def batch(options, step):
    stream = 2 * (step % BATCHES)
    if "image" in options:
        shape = (options["batch"], *map(int, options["image"].split()))
        return values(10000 + stream, shape, 1.0), integers(10001 + stream, (options["batch"],), options["outputs"])
    shape = (options["batch"], options["context"])
    return (integers(10000 + stream, shape, options["outputs"]), integers(10001 + stream, shape, options["outputs"]))


def train(kind):
    options, parameters = kind.options, Parameters()
    network = kind(parameters)
    decayed, others = parameters.trained(True), parameters.trained(False)
    if options["optimizer"] == "adamw":
        optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=options["weight_decay"]),
                                       dict(params=others, weight_decay=0.0)], lr=options["rate"],
                                      betas=(0.9, options["beta2"]))
    else:
        nesterov = options["optimizer"] == "nesterov"
        optimizer = torch.optim.SGD(decayed + others, lr=options["rate"], momentum=0.9 if nesterov else 0.0,
                                    nesterov=nesterov)

    def loss_of(step, training):
        x, y = batch(options, step)
        return F.cross_entropy(network.logits(x, training).reshape(-1, options["outputs"]), y.reshape(-1))

    losses = []
    for step in range(STEPS):
        loss = loss_of(step, True)
        losses.append(loss.item())
        optimizer.zero_grad()
        (loss + options.get("l2", 0.0) / 2 * sum((w * w).sum() for w in decayed)).backward()
        if "clip_norm" in options:
            norm = math.sqrt(sum((w.grad**2).sum().item() for w in decayed + others))
            for w in decayed + others:
                w.grad *= min(1.0, options["clip_norm"] / norm)
        optimizer.step()
    with torch.no_grad():
        evaluation = loss_of(0, False).item()
    return parameters, losses, evaluation


def main():
    lines = [f"# {STEPS} steps of small networks by PyTorch in float64; made by make_network_golden.py"]
    for kind in (Cnn, ResNet, Lstm, Gpt):
        parameters, losses, evaluation = train(kind)
        lines.append(f"case {kind.options['name']}")
        lines += [f"{key} {value}" for key, value in kind.options.items() if key != "name"]
        lines += [f"parameter {name} {scale:.17g} {offset:.17g}"
                  for name, scale, offset, _, _, _ in parameters.entries]
        lines.append("losses " + " ".join(f"{v:.12g}" for v in losses))
        lines.append(f"evaluation {evaluation:.12g}")
    pathlib.Path(__file__).with_name("networks.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
