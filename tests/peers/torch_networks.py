"""The networks of Lockstep in PyTorch, as their users write them, for torch_step.py and torch_gpu_step.py.

A request says what is wanted: "network" (cnn, resnet, lstm, gpt), "batch", and the network's own numbers: "depth",
"layers", "hidden", "width", "heads", "unroll", "context", "classes", "image" ([height, width, channels]), "dropout".
Networks of words also take "padded_classes": rows of their tables, of which random words use the first "classes"; gpt
takes "residual": "bf16" under autocast, where residuals are fp32 otherwise.
"""
import math

import torch
from torch import nn
from torch.nn import functional

# Names that torch_step.py knows.
NAMED = {
    "cnn": {"network": "cnn", "image": [24, 24, 3], "classes": 10},
    "resnet-20": {"network": "resnet", "depth": 20, "image": [32, 32, 3], "classes": 10},
    "lstm-200": {"network": "lstm", "layers": 2, "hidden": 200, "unroll": 20, "classes": 10000},
    "lstm-650": {"network": "lstm", "layers": 2, "hidden": 650, "unroll": 35, "dropout": 0.5, "classes": 10000},
    "gpt-256": {"network": "gpt", "layers": 4, "width": 256, "heads": 4, "context": 128, "classes": 256},
}
POSITIONS = {"gpt": "context", "lstm": "unroll"}  # name of the number of tokens per sample


def cnn(request):
    """TensorFlow's CIFAR-10 tutorial. ceil_mode is its "SAME" where sides are even."""
    height, width, channels = request["image"]
    pool, norm = nn.MaxPool2d(3, 2, ceil_mode=True), nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
    return nn.Sequential(nn.Conv2d(channels, 64, 5, padding=2), nn.ReLU(), pool, norm,
                         nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), norm, pool, nn.Flatten(),
                         nn.Linear(64 * (height // 4) * (width // 4), 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(),
                         nn.Linear(192, request["classes"]))


def convolution(inputs, outputs, window, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False), nn.BatchNorm2d(outputs))


class Subsample(nn.Module):
    """Every other pixel, the new channels zero."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.new = (outputs - inputs) // 2

    def forward(self, x):
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.new, self.new))


class Residual(nn.Module):
    def __init__(self, inputs, channels, stride, bottleneck, projects):
        super().__init__()
        outputs = 4 * channels if bottleneck else channels
        first = [convolution(inputs, channels, 1), nn.ReLU(inplace=True)] if bottleneck else []
        second = convolution(channels if bottleneck else inputs, channels, 3, stride)
        third = convolution(channels, outputs, 1 if bottleneck else 3)
        self.branch = nn.Sequential(*first, second, nn.ReLU(inplace=True), third)
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = convolution(inputs, outputs, 1, stride) if projects else Subsample(inputs, outputs)

    def forward(self, x):
        return functional.relu(self.branch(x) + self.shortcut(x), inplace=True)


def resnet(request):
    """Of depth 20 (small images) or 50, with the stride of a bottleneck in its 3x3 convolution."""
    small = {20: (3, 3, 3), 32: (5, 5, 5), 56: (9, 9, 9)}.get(request["depth"])
    channels = 16 if small else 64
    layers = [convolution(request["image"][2], channels, 3 if small else 7, 1 if small else 2), nn.ReLU(inplace=True)]
    if not small:
        layers.append(nn.MaxPool2d(3, 2, 1))
    inputs, bottleneck = channels, request["depth"] == 50
    for stage, count in enumerate(small or {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}[request["depth"]]):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Residual(inputs, channels << stage, stride, bottleneck, not small))
            inputs = (4 if bottleneck else 1) * (channels << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, request["classes"]))


def words_of(request):
    """Rows of a table of words."""
    return request.get("padded_classes", request["classes"])


class Lstm(nn.Module):
    """Zaremba, Sutskever & Vinyals 2014. Each step begins with a state of zero: nothing is to be learnt here."""

    def __init__(self, request):
        super().__init__()
        hidden, rate = request["hidden"], request.get("dropout", 0)
        self.words = nn.Embedding(words_of(request), hidden)
        self.recurrent = nn.LSTM(hidden, hidden, request["layers"], dropout=rate)
        self.dropout = nn.Dropout(rate) if rate > 0 else nn.Identity()
        self.out = nn.Linear(hidden, words_of(request))

    def forward(self, tokens):
        y, _ = self.recurrent(self.dropout(self.words(tokens.t())))
        return self.out(self.dropout(y).transpose(0, 1))  # a copy of y costs less than one of the logits


def attention_by_hand(q, k, v, is_causal):
    """For a PyTorch before 2.0."""
    assert is_causal
    length = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    mask = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(mask, -math.inf).softmax(-1) @ v


attention = getattr(functional, "scaled_dot_product_attention", attention_by_hand)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        samples, context, width = x.shape
        q, k, v = (part.view(samples, context, self.heads, -1).transpose(1, 2)
                   for part in self.joint(self.norm_1(x)).split(width, dim=2))
        y = attention(q, k, v, is_causal=True).transpose(1, 2).reshape(samples, context, width)
        x = x + self.out(y)
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2: pre-norm, one joint projection, the output layer shares the embedding's table."""

    def __init__(self, request):
        super().__init__()
        width = request["width"]
        self.residual = {"bf16": torch.bfloat16}.get(request.get("residual"), torch.float32)
        self.words = nn.Embedding(words_of(request), width)
        self.places = nn.Parameter(0.02 * torch.randn(request["context"], width))
        self.blocks = nn.ModuleList(Block(width, request["heads"]) for _ in range(request["layers"]))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens):
        x = (self.words(tokens) + self.places).to(self.residual)
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.words.weight)


NETWORKS = {"cnn": cnn, "resnet": resnet, "lstm": Lstm, "gpt": Gpt}


def network_of(request, device="cpu"):
    return NETWORKS[request["network"]](request).to(device)


def optimizer_of(request, parameters, **options):
    """As `lockstep train` has it for this network; the rate is small, so that nothing diverges in a measurement."""
    kind, rate = request["network"], 1e-5
    if kind == "gpt":
        return torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.99), weight_decay=0.1, **options)
    if kind == "resnet":
        return torch.optim.SGD(parameters, lr=rate, momentum=0.9, nesterov=True, weight_decay=1e-4, **options)
    return torch.optim.SGD(parameters, lr=rate, **options)


def clip_of(request):
    """The norm that gradients are clipped to, or 0."""
    return {"gpt": 1.0, "lstm": 5.0}.get(request["network"], 0)


def batches_of(request, count, device="cpu", channels_last=False):
    """`count` resident batches and their answers."""
    batch, classes = request["batch"], request["classes"]
    if request["network"] in POSITIONS:
        shape = (count, batch, request[POSITIONS[request["network"]]])
        return torch.randint(classes, shape, device=device), torch.randint(classes, shape, device=device)
    height, width, channels = request["image"]
    images = torch.randn(count, batch, channels, height, width, device=device)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return ([image.contiguous(memory_format=layout) for image in images],
            torch.randint(classes, (count, batch), device=device))


def loss_of(outputs, answers):
    """The mean over samples and positions."""
    return functional.cross_entropy(outputs.flatten(0, -2), answers.flatten())


def make(name, batch, resident=2):
    """For torch_step.py: the network, its loss on resident batch i, what makes its optimiser, the norm to clip to."""
    request = {**NAMED[name], "batch": batch}
    x, y = batches_of(request, resident)
    return (network_of(request), lambda module, i: loss_of(module(x[i]), y[i]),
            lambda parameters: optimizer_of(request, parameters), clip_of(request))
