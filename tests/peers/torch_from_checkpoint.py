#!/usr/bin/env python3
"""Builds a network of Lockstep in PyTorch from a checkpoint alone, and evaluates it.

    torch_from_checkpoint.py CHECKPOINT DATA.h5

Its only source is io/checkpoints/checkpoint_format.md: who wants to use a checkpoint elsewhere can begin here. DATA.h5 holds
`x` and `y`, or the tokens of a shard. Prints a JSON line with `loss` and the metric, as `lockstep eval --evaluation-batch 1`.
"""
import configparser
import functools
import json
import sys

import h5py
import numpy
import torch
from torch.nn import functional


class Checkpoint:
    def __init__(self, path):
        with h5py.File(path) as file:
            state = file["state"]
            text = lambda name: state[name][:].tobytes().decode()
            parser = configparser.ConfigParser()
            parser.read_string("[options]\n" + text("configuration"))
            self.options = parser["options"]
            self.kind = state.attrs["network_kind"].decode()
            self.description = json.loads(text("data_description") or "{}")
            self.context = int(state.attrs["features"])
            self.tensors = {}
            group = "average" if self.options.get("evaluate-average") == "yes" else "parameters"
            for name in [t.decode() for t in state.attrs["tensors"]]:
                if name.split("/")[0] == group:
                    self.tensors[name[len(group) + 1:]] = torch.from_numpy(file[name][:])

    def __getitem__(self, name):
        return self.tensors[name]

    def __contains__(self, name):
        return name in self.tensors


def dense(c, name, x):
    return x @ c[name + "/weight"] + c[name + "/bias"]


def convolution(c, name, x, stride, padding, bias):
    """x is [samples, channels, height, width] here, as PyTorch wants it."""
    weight = c[name + "/weight"].permute(3, 2, 0, 1)
    return functional.conv2d(x, weight, c[name + "/bias"] if bias else None, stride, padding)


def activation(c):
    gelu = functools.partial(functional.gelu, approximate="tanh")
    return {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": gelu}[c.options["activation"]]


def mlp(c, x):
    x, layer = x.flatten(1), 1
    while f"dense_{layer + 1}/weight" in c:
        x, layer = activation(c)(dense(c, f"dense_{layer}", x)), layer + 1
    return dense(c, f"dense_{layer}", x)


def same_pool(x):
    pads = []
    for extent in (x.shape[3], x.shape[2]):
        missing = max(0, (-(-extent // 2) - 1) * 2 + 3 - extent)
        pads += [missing // 2, missing - missing // 2]
    return functional.max_pool2d(functional.pad(x, pads, value=-torch.inf), 3, 2)


def response_norm(x):
    squares = functional.pad(x.square(), (0, 0, 0, 0, 4, 4))
    return x / (1 + 0.001 / 9 * squares.unfold(1, 9, 1).sum(-1)) ** 0.75


def cnn(c, x):
    act = activation(c)
    x = response_norm(same_pool(act(convolution(c, "conv_1", x.permute(0, 3, 1, 2), 1, 2, True))))
    x = same_pool(response_norm(act(convolution(c, "conv_2", x, 1, 2, True))))
    x = x.permute(0, 2, 3, 1).flatten(1)
    return dense(c, "dense_3", act(dense(c, "dense_2", act(dense(c, "dense_1", x)))))


def normalized(c, name, x, stride, padding):
    x, norm = convolution(c, name, x, stride, padding, False), name + "/norm/"
    return functional.batch_norm(x, c[norm + "running_mean"], c[norm + "running_variance"], c[norm + "scale"], c[norm + "shift"],
                                 eps=1e-5)


def block(c, name, x, stride):
    bottleneck = name + "/conv_3/weight" in c
    y = x
    if bottleneck:
        y = torch.relu(normalized(c, name + "/conv_1", y, 1, 0))
        y = torch.relu(normalized(c, name + "/conv_2", y, stride, 1))
        y = normalized(c, name + "/conv_3", y, 1, 0)
    else:
        y = torch.relu(normalized(c, name + "/conv_1", y, stride, 1))
        y = normalized(c, name + "/conv_2", y, 1, 1)
    if name + "/projection/weight" in c:
        x = normalized(c, name + "/projection", x, stride, 0)
    elif y.shape != x.shape:
        new = (y.shape[1] - x.shape[1]) // 2
        x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, new, new))
    return torch.relu(x + y)


def resnet(c, x):
    large = c.options["depth"] in ("18", "34", "50")
    x = torch.relu(normalized(c, "stem", x.permute(0, 3, 1, 2), 2 if large else 1, 3 if large else 1))
    if large:
        x = functional.max_pool2d(x, 3, 2, 1)
    for stage in range(1, 5 if large else 4):
        number = 1
        while f"stage_{stage}/block_{number}/conv_1/weight" in c:
            x = block(c, f"stage_{stage}/block_{number}", x, 2 if stage > 1 and number == 1 else 1)
            number += 1
    return dense(c, "dense", x.mean((2, 3)))


def head(c, x):
    return x @ c["embedding/tokens"].T if c.options["tied"] == "yes" else dense(c, "head", x)


def lstm(c, tokens, state):
    x, layer = c["embedding/tokens"][tokens], 1
    while f"lstm_{layer}/input" in c:
        name = f"lstm_{layer}"
        h, cell = state.get(name, (torch.zeros(len(c[name + "/recurrent"])),) * 2)
        outputs = []
        for row in x:
            i, f, g, o = (row @ c[name + "/input"] + h @ c[name + "/recurrent"] + c[name + "/bias"]).chunk(4)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(cell)
            outputs.append(h)
        state[name], x, layer = (h, cell), torch.stack(outputs), layer + 1
    return head(c, x)


def layer_norm(c, name, x):
    return functional.layer_norm(x, x.shape[-1:], c[name + "/scale"], c[name + "/shift"], 1e-5)


def gpt(c, tokens):
    x, number, heads = c["embedding/tokens"][tokens] + c["embedding/positions"][:len(tokens)], 1, int(c.options["heads"])
    while f"block_{number}/norm_1/scale" in c:
        name = f"block_{number}"
        joint = dense(c, name + "/attention/joint", layer_norm(c, name + "/norm_1", x))
        q, k, v = (part.view(len(tokens), heads, -1).transpose(0, 1) for part in joint.chunk(3, -1))
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        later = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
        attended = scores.masked_fill(later, -torch.inf).softmax(-1) @ v
        x = x + dense(c, name + "/attention/output", attended.transpose(0, 1).reshape(x.shape))
        h = dense(c, name + "/feed_forward/expand", layer_norm(c, name + "/norm_2", x))
        x = x + dense(c, name + "/feed_forward/contract", functional.gelu(h, approximate="tanh"))
        number += 1
    return head(c, layer_norm(c, "norm", x))


def input_of(c, x):
    """The numbers of stored samples as the network reads them."""
    known = c.description["input"]
    for change in known["augmentation"].split(","):
        if change.startswith("crop="):
            height, _, width = change[5:].partition("x")
            height, width = int(height), int(width or height)
            top, left = (x.shape[1] - height) // 2, (x.shape[2] - width) // 2
            x = x[:, top:top + height, left:left + width]
    x = torch.from_numpy(x.astype(numpy.float32)) * known["scale"] + known["shift"]
    if known["per_image"]:
        flat = x.flatten(1)
        deviation = flat.var(1, unbiased=False).sqrt().clamp_min(flat.shape[1] ** -0.5)
        x = ((flat - flat.mean(1, keepdim=True)) / deviation[:, None]).view(x.shape)
    return x


def evaluate_samples(c, file):
    y = torch.from_numpy(file["y"][:])
    out = {"linear": mlp, "mlp": mlp, "cnn": cnn, "resnet": resnet}[c.kind](c, input_of(c, file["x"][:]))
    if c.description["labels"] == "classes":
        loss = functional.cross_entropy(out.double(), y.long())
        return {"loss": loss.item(), "accuracy": (out.argmax(1) == y).double().mean().item()}
    error = out.double() - y.view(out.shape).double()
    return {"loss": error.square().mean().item(), "mean_absolute_error": error.abs().mean().item()}


def evaluate_tokens(c, file):
    """Samples are windows of `context` tokens, one behind the other. A network that carries state goes through a text in
    lanes, each of which has read 256 tokens or a little more before its own."""
    tokens = torch.from_numpy(file["tokens"][:].astype(numpy.int64))
    samples = (len(tokens) - c.context) // c.context
    before = -(-256 // c.context)
    lanes = min(max(samples // before, 1), 64)
    total = 0
    for lane in range(lanes):
        state, begin, end = {}, samples * lane // lanes, samples * (lane + 1) // lanes
        for sample in range(max(begin - before, 0) if c.kind == "lstm" else begin, end):
            window = tokens[sample * c.context:(sample + 1) * c.context + 1]
            out = lstm(c, window[:-1], state) if c.kind == "lstm" else gpt(c, window[:-1])
            if sample >= begin:
                total += functional.cross_entropy(out.double(), window[1:], reduction="sum").item()
    loss = total / (samples * c.context)
    return {"loss": loss, "perplexity": float(numpy.exp(loss))}


def main():
    checkpoint = Checkpoint(sys.argv[1])
    with torch.no_grad(), h5py.File(sys.argv[2]) as file:
        evaluate = evaluate_tokens if checkpoint.kind in ("lstm", "gpt") else evaluate_samples
        print(json.dumps(evaluate(checkpoint, file)))


if __name__ == "__main__":
    main()
