#!/usr/bin/env python3
"""Writes pytorch.txt beside this file: 20 training steps by PyTorch, for tests/model/golden_test.cpp to repeat.

Weights, samples and labels come from an integer hash that both sides compute exactly, so only losses and final sums of
the weights are stored. PyTorch runs in float64: the numbers depend on no machine, and what the test sees is Lockstep's
own rounding. Needs torch (any version; 1.13 made the file in the tree)."""

import pathlib

import torch

BATCH, STEPS = 32, 20
torch.set_default_dtype(torch.float64)


def mixed(x):
    """A 32-bit integer hash: every bit of x touches every bit of the result."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return x ^ (x >> 16)


def words(stream, count):
    return [mixed(mixed(stream) ^ i) for i in range(count)]


def values(stream, shape, scale):
    """In [-scale, scale), multiples of scale * 2^-23: exact in float32 where scale is a power of two."""
    count = 1
    for extent in shape:
        count *= extent
    return torch.tensor([((w >> 8) - 2**23) * 2.0**-23 * scale for w in words(stream, count)]).reshape(shape)


CASES = {
    "softmax_sgd": dict(widths=(20, 16, 12, 5), activation="relu", loss="softmax", optimizer="sgd", rate=0.1),
    "softmax_momentum": dict(widths=(20, 16, 12, 5), activation="tanh", loss="softmax", optimizer="momentum", rate=0.05),
    "softmax_nesterov": dict(widths=(20, 16, 12, 5), activation="sigmoid", loss="softmax", optimizer="nesterov",
                             rate=0.05),
    "softmax_adam": dict(widths=(20, 16, 12, 5), activation="relu", loss="softmax", optimizer="adam", rate=0.01),
    "softmax_adamw": dict(widths=(20, 16, 12, 5), activation="relu", loss="softmax", optimizer="adamw", rate=0.01,
                          weight_decay=0.1),
    "softmax_l2": dict(widths=(20, 16, 12, 5), activation="relu", loss="softmax", optimizer="momentum", rate=0.05,
                       l2=0.01),
    "softmax_clip_norm": dict(widths=(20, 16, 12, 5), activation="relu", loss="softmax", optimizer="sgd", rate=0.5,
                              clip_norm=0.25),
    "softmax_linear": dict(widths=(20, 5), activation="none", loss="softmax", optimizer="sgd", rate=0.5),
    "labels_adam": dict(widths=(12, 16, 8, 5), activation="relu", loss="binary", optimizer="adam", rate=0.01),
    "mse_sgd": dict(widths=(12, 16, 8, 1), activation="tanh", loss="mse", optimizer="sgd", rate=0.1),
    "mse_nesterov": dict(widths=(12, 16, 8, 1), activation="relu", loss="mse", optimizer="nesterov", rate=0.02),
    "mse_adam": dict(widths=(12, 16, 8, 1), activation="relu", loss="mse", optimizer="adam", rate=0.01),
    "mse_adamw_clip_value": dict(widths=(12, 16, 8, 3), activation="tanh", loss="mse", optimizer="adamw", rate=0.01,
                                 weight_decay=0.05, clip_value=0.01),
    "mse_linear_l2": dict(widths=(12, 1), activation="none", loss="mse", optimizer="sgd", rate=0.1, l2=0.1),
    "softmax_lars": dict(widths=(20, 16, 12, 5), activation="relu", loss="softmax", optimizer="lars", rate=1.0,
                         weight_decay=0.01, trust=0.02),
    "softmax_lamb": dict(widths=(20, 16, 12, 5), activation="relu", loss="softmax", optimizer="lamb", rate=0.02,
                         weight_decay=0.01),
}


class LayerWise:
    """LARS (You, Gitman & Ginsburg 2017) and LAMB (You et al. 2020), which torch.optim has not: weights take steps of a
    length relative to their own, biases (not decayed) take the plain one."""

    def __init__(self, weights, biases, case):
        self.groups, self.case, self.count = ((weights, True), (biases, False)), case, 0
        self.state = {id(p): (torch.zeros_like(p), torch.zeros_like(p)) for p in weights + biases}

    def zero_grad(self):
        for parameters, _ in self.groups:
            for p in parameters:
                p.grad = None

    @torch.no_grad()
    def step(self):
        self.count += 1
        rate = self.case["rate"]
        for parameters, decayed in self.groups:
            decay = self.case["weight_decay"] if decayed else 0.0
            for p in parameters:
                first, second = self.state[id(p)]
                if self.case["optimizer"] == "lars":
                    ratio = self.case["trust"] * p.norm() / (p.grad.norm() + decay * p.norm()) if decayed else 1.0
                    first.mul_(0.9).add_(ratio * rate * (p.grad + decay * p))
                    p.sub_(first)
                else:
                    first.mul_(0.9).add_(0.1 * p.grad)
                    second.mul_(0.999).add_(0.001 * p.grad**2)
                    step = (first / (1 - 0.9**self.count)) / ((second / (1 - 0.999**self.count)).sqrt() + 1e-8)
                    step += decay * p
                    p.sub_(rate * (p.norm() / step.norm() if decayed else 1.0) * step)


def train(case):
    widths = case["widths"]
    layers = list(zip(widths[:-1], widths[1:]))
    weights = [values(1 + i, shape, 0.5).requires_grad_() for i, shape in enumerate(layers)]
    biases = [values(101 + i, shape[1:], 0.125).requires_grad_() for i, shape in enumerate(layers)]
    rate, decay = case["rate"], case.get("weight_decay", 0.0)
    if case["optimizer"] in ("adam", "adamw"):
        kind = torch.optim.AdamW if case["optimizer"] == "adamw" else torch.optim.Adam
        groups = [dict(params=weights, weight_decay=decay), dict(params=biases, weight_decay=0.0)]
        optimizer = kind(groups, lr=rate)
    elif case["optimizer"] in ("lars", "lamb"):
        optimizer = LayerWise(weights, biases, case)
    else:
        momentum = 0.0 if case["optimizer"] == "sgd" else 0.9
        optimizer = torch.optim.SGD(weights + biases, lr=rate, momentum=momentum,
                                    nesterov=case["optimizer"] == "nesterov")
    activation = dict(relu=torch.relu, tanh=torch.tanh, sigmoid=torch.sigmoid, none=lambda v: v)[case["activation"]]
    losses = []
    for step in range(STEPS):
        y = values(1000 + step, (BATCH, widths[0]), 1.0)
        for i, (weight, bias) in enumerate(zip(weights, biases)):
            y = y @ weight + bias
            if i + 1 < len(weights):
                y = activation(y)
        if case["loss"] == "softmax":
            labels = torch.tensor([w % widths[-1] for w in words(2000 + step, BATCH)])
            loss = torch.nn.functional.cross_entropy(y, labels)
        elif case["loss"] == "binary":
            there = (values(2000 + step, (BATCH, widths[-1]), 1.0) > 0).to(torch.float64)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(y, there)
        else:
            loss = torch.nn.functional.mse_loss(y, values(2000 + step, (BATCH, widths[-1]), 1.0))
        losses.append(loss.item())
        optimizer.zero_grad()
        (loss + case.get("l2", 0.0) / 2 * sum((w * w).sum() for w in weights)).backward()
        if "clip_norm" in case:
            torch.nn.utils.clip_grad_norm_(weights + biases, case["clip_norm"])
        if "clip_value" in case:
            torch.nn.utils.clip_grad_value_(weights + biases, case["clip_value"])
        optimizer.step()
    return losses, [p.sum().item() for pair in zip(weights, biases) for p in pair]


def main():
    lines = [f"# {STEPS} steps of batch {BATCH} by PyTorch in float64; made by make_golden.py"]
    for name, case in CASES.items():
        losses, sums = train(case)
        lines.append(f"case {name}")
        for key, value in case.items():
            lines.append(f"{key} {' '.join(map(str, value)) if isinstance(value, tuple) else value}")
        lines.append("losses " + " ".join(f"{v:.12g}" for v in losses))
        lines.append("sums " + " ".join(f"{v:.12g}" for v in sums))
    pathlib.Path(__file__).with_name("pytorch.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
