"""The networks of `lockstep bench step` in PyTorch, as their users write them: modules, optimisers and batches."""


def gpt(torch, request):
    """GPT-2: pre-norm, one joint projection, the head shares the embedding's table."""
    nn, functional = torch.nn, torch.nn.functional
    width, heads = request["width"], request["heads"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            samples, context, _ = x.shape
            q, k, v = (part.view(samples, context, heads, width // heads).transpose(1, 2)
                       for part in self.joint(self.norm_1(x)).split(width, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(samples, context, width))
            return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(request["classes"], width)
            self.places = nn.Parameter(0.02 * torch.randn(request["context"], width))
            self.blocks = nn.ModuleList(Block() for _ in range(request["layers"]))
            self.norm = nn.LayerNorm(width)
            nn.init.normal_(self.words.weight, std=0.02)

        def forward(self, tokens):
            x = self.words(tokens) + self.places
            for block in self.blocks:
                x = block(x)
            return functional.linear(self.norm(x), self.words.weight).flatten(0, 1)

    return Network()


def lstm(torch, request):
    """An LSTM language model; its state starts at zero in each step, as in the measurement beside it."""
    nn = torch.nn
    hidden = request["hidden"]

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(request["classes"], hidden)
            self.recurrent = nn.LSTM(hidden, hidden, request["layers"], batch_first=True)
            self.out = nn.Linear(hidden, request["classes"])

        def forward(self, tokens):
            return self.out(self.recurrent(self.words(tokens))[0]).flatten(0, 1)

    return Network()


def resnet50(torch, request):
    """ResNet-50 with the stride of a bottleneck in its 3x3 convolution."""
    nn, functional = torch.nn, torch.nn.functional

    def convolution(inputs, outputs, window, stride=1):
        return nn.Sequential(nn.Conv2d(inputs, outputs, window, stride, window // 2, bias=False),
                             nn.BatchNorm2d(outputs))

    class Block(nn.Module):
        def __init__(self, inputs, channels, stride):
            super().__init__()
            self.first, self.second = convolution(inputs, channels, 1), convolution(channels, channels, 3, stride)
            self.third = convolution(channels, 4 * channels, 1)
            new = stride > 1 or inputs != 4 * channels
            self.shortcut = convolution(inputs, 4 * channels, 1, stride) if new else nn.Identity()

        def forward(self, x):
            y = functional.relu(self.second(functional.relu(self.first(x))), inplace=False)
            return functional.relu(self.third(y) + self.shortcut(x))

    layers, inputs = [convolution(request["image"][2], 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            layers.append(Block(inputs, 64 << stage, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, request["classes"]))


def cnn(torch, request):
    """TensorFlow's CIFAR-10 tutorial."""
    nn = torch.nn
    height, width, channels = request["image"]
    pool, norm = nn.MaxPool2d(3, 2, 1), nn.LocalResponseNorm(9, 0.001, 0.75, 1.0)
    side = -(-height // 4) * -(-width // 4)
    return nn.Sequential(nn.Conv2d(channels, 64, 5, padding=2), nn.ReLU(), pool, norm,
                         nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), norm, pool,
                         nn.Flatten(), nn.Linear(64 * side, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(),
                         nn.Linear(192, request["classes"]))


NETWORKS = {"gpt": gpt, "lstm": lstm, "resnet50": resnet50, "cnn": cnn}
POSITIONS = {"gpt": "context", "lstm": "unroll"}
IMAGES = ("resnet50", "cnn")


def network_of(torch, device, request):
    network = NETWORKS[request["network"]](torch, request).to(device)
    return network.to(memory_format=torch.channels_last) if request["network"] in IMAGES else network


def optimizer_of(torch, network, request, **options):
    parameters = network.parameters()
    if request["network"] == "gpt":
        return torch.optim.AdamW(parameters, lr=1e-5, betas=(0.9, 0.99), weight_decay=0.1, **options)
    momentum = 0.9 if request["network"] == "resnet50" else 0.0
    return torch.optim.SGD(parameters, lr=1e-5, momentum=momentum, **options)


def clip_of(request):
    """The norm to which gradients are clipped."""
    return {"gpt": 1.0, "lstm": 5.0}.get(request["network"])


def batches_of(torch, device, request, count):
    """Resident samples and answers: [count, batch, ...]."""
    batch, classes = request["batch"], request["classes"]
    if request["network"] in POSITIONS:
        shape = (count, batch, request[POSITIONS[request["network"]]])
        return (torch.randint(classes, shape, device=device),
                torch.randint(classes, shape, device=device).flatten(1))
    height, width, channels = request["image"]
    images = torch.randn(count, batch, channels, height, width, device=device)
    images = [image.contiguous(memory_format=torch.channels_last) for image in images]
    return images, torch.randint(classes, (count, batch), device=device)
