"""The networks of Lockstep in PyTorch, as their users write them, for torch_step.py and torch_gpu_step.py.

A request says what is wanted: "network" (cnn, resnet, lstm, gpt, or one of app/examples: cosmoflow, unet, spectra,
series, vit), "batch", and the network's own numbers: "depth", "layers", "hidden", "width", "heads", "unroll",
"context", "classes", "image" (extents, then channels), "dropout", "levels", "filters", "patch"; "targets": so many
numbers instead of classes.
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
    "cosmoflow-32": {"network": "cosmoflow", "image": [32, 32, 32, 4], "filters": 32, "levels": 4, "targets": 4},
    "cosmoflow-64": {"network": "cosmoflow", "image": [64, 64, 64, 4], "filters": 32, "levels": 5, "targets": 4},
    "unet-2d": {"network": "unet", "image": [128, 128, 1], "width": 16, "levels": 3, "classes": 3},
    "unet-3d": {"network": "unet", "image": [32, 32, 32, 1], "width": 16, "levels": 3, "classes": 3},
    "spectra": {"network": "spectra", "image": [1000, 1], "filters": [16, 32, 64], "targets": 2},
    "gru": {"network": "series", "image": [96, 8], "width": 128, "layers": 2, "targets": 24},
    "vit": {"network": "vit", "image": [32, 32, 3], "patch": 4, "width": 128, "heads": 4, "layers": 4, "classes": 10},
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
    length = q.shape[-2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        mask = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(mask, -math.inf)
    return scores.softmax(-1) @ v


attention = getattr(functional, "scaled_dot_product_attention", attention_by_hand)


class Block(nn.Module):
    def __init__(self, width, heads, causal=True):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        samples, context, width = x.shape
        q, k, v = (part.view(samples, context, self.heads, -1).transpose(1, 2)
                   for part in self.joint(self.norm_1(x)).split(width, dim=2))
        y = attention(q, k, v, is_causal=self.causal).transpose(1, 2).reshape(samples, context, width)
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


def directions_of(request):
    """The extents that convolutions slide along. A series has two when its layout is to be channels-last, which PyTorch
    has for images and volumes alone."""
    return 2 if request.get("as_image") else len(request["image"]) - 1


def of_directions(name, request):
    return getattr(nn, f"{name}{directions_of(request)}d")


def cosmoflow(request):
    """app/examples/cosmoflow."""
    *extents, channels = request["image"]
    layers = []
    for level in range(request["levels"]):
        filters = request["filters"] << level
        layers += [nn.Conv3d(channels, filters, 3, padding=1), nn.LeakyReLU(0.3), nn.AvgPool3d(2)]
        channels = filters
    places = math.prod(extent >> request["levels"] for extent in extents)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * places, 128), nn.LeakyReLU(0.3), nn.Linear(128, 64),
                         nn.LeakyReLU(0.3), nn.Linear(64, request["targets"]))


class Unet(nn.Module):
    """app/examples/unet."""

    def __init__(self, request):
        super().__init__()
        conv, transposed = of_directions("Conv", request), of_directions("ConvTranspose", request)
        width, levels, channels = request["width"], request["levels"], request["image"][-1]

        def double(inputs, outputs):
            return nn.Sequential(*(layer for one in (inputs, outputs) for layer in (
                conv(one, outputs, 3, padding=1, bias=False), nn.GroupNorm(outputs // 2, outputs), nn.ReLU(inplace=True))))

        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([channels] + widths, widths[:-1]))
        self.bottom = double(widths[-2], widths[-1])
        self.up = nn.ModuleList(transposed(2 * one, one, 2, 2) for one in reversed(widths[:-1]))
        self.join = nn.ModuleList(double(2 * one, one) for one in reversed(widths[:-1]))
        self.pool = of_directions("MaxPool", request)(2)
        self.head = conv(width, request["classes"], 1)

    def forward(self, x):
        kept = []
        for block in self.down:
            kept.append(block(x))
            x = self.pool(kept[-1])
        x = self.bottom(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.head(x)


class GlobalMax(nn.Module):
    def forward(self, x):
        return x.flatten(2).amax(2)


def spectra(request):
    """app/examples/spectra."""
    one, channels, layers = directions_of(request) == 1, request["image"][-1], []
    for filters in request["filters"]:
        layers += [of_directions("Conv", request)(channels, filters, 7 if one else (1, 7), padding=3 if one else (0, 3)),
                   nn.ReLU(inplace=True), of_directions("MaxPool", request)(2 if one else (1, 2))]
        channels = filters
    return nn.Sequential(*layers, GlobalMax(), nn.Linear(channels, 64), nn.ReLU(), nn.Linear(64, request["targets"]))


class Series(nn.Module):
    """app/examples/series."""

    def __init__(self, request):
        super().__init__()
        self.recurrent = nn.GRU(request["image"][-1], request["width"], request["layers"])
        self.forecast = nn.Linear(request["width"], request["targets"])

    def forward(self, x):
        return self.forecast(self.recurrent(x.transpose(0, 1))[0][-1])


class Vit(nn.Module):
    """app/examples/vit."""

    def __init__(self, request):
        super().__init__()
        height, width, channels = request["image"]
        patch, numbers = request["patch"], request["width"]
        self.patches = nn.Conv2d(channels, numbers, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(height // patch * (width // patch), numbers))
        self.blocks = nn.Sequential(*(Block(numbers, request["heads"], causal=False) for _ in range(request["layers"])))
        self.norm, self.head = nn.LayerNorm(numbers), nn.Linear(numbers, request["classes"])

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.places)).mean(1))


NETWORKS = {"cnn": cnn, "resnet": resnet, "lstm": Lstm, "gpt": Gpt, "cosmoflow": cosmoflow, "unet": Unet,
            "spectra": spectra, "series": Series, "vit": Vit}


ADAM = ("gpt", "unet", "vit", "cosmoflow", "spectra", "series")  # networks whose optimiser is Adam or AdamW


def network_of(request, device="cpu"):
    return NETWORKS[request["network"]](request).to(device)


def optimizer_of(request, parameters, **options):
    """As `lockstep train` has it for this network; the rate is small, so that nothing diverges in a measurement."""
    kind, rate = request["network"], 1e-5
    if kind == "gpt":
        return torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.99), weight_decay=0.1, **options)
    if kind in ("unet", "vit"):
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=0.01, **options)
    if kind in ("cosmoflow", "spectra", "series"):
        return torch.optim.Adam(parameters, lr=rate, **options)
    if kind == "resnet":
        return torch.optim.SGD(parameters, lr=rate, momentum=0.9, nesterov=True, weight_decay=1e-4, **options)
    return torch.optim.SGD(parameters, lr=rate, **options)


def clip_of(request):
    """The norm that gradients are clipped to, or 0."""
    return {"gpt": 1.0, "lstm": 5.0, "series": 1.0}.get(request["network"], 0)


def batches_of(request, count, device="cpu", channels_last=False):
    """`count` resident batches and their answers."""
    batch, kind = request["batch"], request["network"]
    if kind in POSITIONS:
        shape = (count, batch, request[POSITIONS[kind]])
        return tuple(torch.randint(request["classes"], shape, device=device) for _ in range(2))
    *extents, channels = request["image"]
    if kind == "series":
        images = torch.randn(count, batch, *extents, channels, device=device)
    else:
        sides = [1] * (directions_of(request) - len(extents)) + extents
        images = torch.randn(count, batch, channels, *sides, device=device)
        if channels_last:
            layout = torch.channels_last_3d if len(sides) == 3 else torch.channels_last
            images = [image.contiguous(memory_format=layout) for image in images]
    if "targets" in request:
        return images, torch.randn(count, batch, request["targets"], device=device)
    places = extents if kind == "unet" else []
    return images, torch.randint(request["classes"], (count, batch, *places), device=device)


def loss_of(outputs, answers):
    """The mean over samples and positions."""
    if answers.is_floating_point():
        return functional.mse_loss(outputs, answers)
    if outputs.dim() > 3:  # masks: classes stand before the extents
        return functional.cross_entropy(outputs, answers)
    return functional.cross_entropy(outputs.flatten(0, -2), answers.flatten())


def make(name, batch, resident=2, channels_last=False):
    """For torch_step.py: the network, its loss on resident batch i, what makes its optimiser, the norm to clip to."""
    request = {**NAMED[name], "batch": batch}
    request["as_image"] = channels_last and len(request.get("image", [])) == 2
    x, y = batches_of(request, resident, channels_last=channels_last)
    network = network_of(request)
    if channels_last:
        network = network.to(memory_format=torch.channels_last_3d if directions_of(request) == 3 else torch.channels_last)
    return (network, lambda module, i: loss_of(module(x[i]), y[i]),
            lambda parameters: optimizer_of(request, parameters), clip_of(request))
