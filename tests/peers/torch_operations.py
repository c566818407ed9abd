#!/usr/bin/env python3
"""Small networks that have each operation, for a comparison of their gradients with PyTorch's.

    torch_operations.py make FOLDER                      writes NAME/net.yaml, NAME/x.npy and NAME/y.npy for each network
    torch_operations.py compare FOLDER STEPS RATE        a line for each NAME that differs

`compare` takes STEPS steps of gradient descent in double precision from the weights in NAME/first.safetensors, with all
samples in each step, and compares with NAME/last.safetensors: every tensor must have moved, and to the same place.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from torch.nn import functional as f

SAMPLES = 24


def channels_first(x):
    return x.movedim(-1, 1).contiguous()  # PyTorch 2.11 crashes in group_norm of such a view


def channels_last(x):
    return x.movedim(1, -1)


def on_images(work):
    """`work` on channels-first values, for channels-last ones."""
    return lambda x, w: channels_last(work(channels_first(x), w))


def filters(w, name):
    """[kernel, in, out] as PyTorch has them."""
    return w[name + "/weight"].movedim(-1, 0).movedim(-1, 1)


def conv(directions, name="conv", **arguments):
    work = {1: f.conv1d, 2: f.conv2d, 3: f.conv3d}[directions]
    return on_images(lambda x, w: work(x, filters(w, name), w[name + "/bias"], **arguments))


def transposed(directions, **arguments):
    """Lockstep's filters are those of the convolution whose transpose it is: from the large value to the small one."""
    work = {1: f.conv_transpose1d, 2: f.conv_transpose2d, 3: f.conv_transpose3d}[directions]
    return on_images(lambda x, w: work(x, filters(w, "conv"), w["conv/bias"], **arguments))


def norm(groups):
    return on_images(lambda x, w: f.group_norm(x, groups, w["norm/scale"], w["norm/shift"], 1e-5))


def recurrent(kind, x, w, name, backward=False):
    """A layer in one direction; [samples, steps, numbers] in and out."""
    units = w[name + "/recurrent"].shape[0]
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](x.shape[2], units, batch_first=True)
    inner = {"weight_ih_l0": w[name + "/input"].T, "weight_hh_l0": w[name + "/recurrent"].T, "bias_ih_l0": w[name + "/bias"],
             "bias_hh_l0": w.get(name + "/recurrent-bias", torch.zeros_like(w[name + "/bias"]))}
    y = torch.func.functional_call(module, inner, (x.flip(1) if backward else x,))[0]
    return y.flip(1) if backward else y


def both(kind):
    return lambda x, w: torch.cat([recurrent(kind, x, w, "cell/forward"), recurrent(kind, x, w, "cell/backward", True)], -1)


def last_of_both(kind):
    return lambda x, w: torch.cat([recurrent(kind, x, w, "cell/forward")[:, -1],
                                   recurrent(kind, x, w, "cell/backward", True)[:, 0]], -1)


def attention(heads, causal):
    def work(x, w):
        joint = x @ w["joint/weight"] + w["joint/bias"]
        samples, steps, width = joint.shape
        q, k, v = (part.reshape(samples, steps, heads, -1).transpose(1, 2) for part in joint.split(width // 3, -1))
        y = f.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2).reshape(samples, steps, -1)
    return work


def pooled(work):
    return on_images(lambda x, w: work(x))


def behind(layer, work):
    return lambda x, w: work(x @ w[layer + "/weight"] + w[layer + "/bias"])


FUNCTIONS = {"relu": f.relu, "leaky-relu: 0.3": lambda x: f.leaky_relu(x, 0.3), "elu": f.elu, "tanh": torch.tanh,
             "sigmoid": torch.sigmoid, "silu": f.silu, "gelu": lambda x: f.gelu(x, approximate="tanh"), "gelu-exact": f.gelu,
             "softplus": f.softplus, "hard-sigmoid": f.hardsigmoid, "hard-swish": f.hardswish, "scale: 0.7": lambda x: 0.7 * x,
             "softmax": lambda x: x.softmax(-1)}

# name: extents of a sample, layers, the same in PyTorch. `flatten` and a dense layer, "head", follow.
CASES = {
    "conv_1d": ([19, 3], "conv: {channels: 4, kernel: 5, stride: 2, padding: 2, name: conv}", conv(1, stride=2, padding=2)),
    "conv_1d_dilated": ([19, 3], "conv: {channels: 4, kernel: 3, dilation: 3, padding: 3, name: conv}",
                        conv(1, dilation=3, padding=3)),
    "conv_2d": ([9, 8, 3], "conv: {channels: 5, kernel: 3, stride: [2, 1], padding: [1, 0], name: conv}",
                conv(2, stride=(2, 1), padding=(1, 0))),
    "conv_2d_groups": ([9, 8, 6], "conv: {channels: 4, kernel: 3, groups: 2, name: conv}", conv(2, padding=1, groups=2)),
    "conv_2d_depthwise": ([9, 8, 6], "conv: {channels: 6, kernel: 3, groups: 6, name: conv}", conv(2, padding=1, groups=6)),
    "conv_2d_one_channel": ([9, 8, 1], "conv: {channels: 16, kernel: 3, name: conv}", conv(2, padding=1)),
    "conv_2d_pointwise": ([9, 8, 16], "conv: {channels: 3, kernel: 1, name: conv}", conv(2)),
    "conv_3d": ([5, 6, 7, 3], "conv: {channels: 4, kernel: 3, name: conv}", conv(3, padding=1)),
    "conv_3d_strides": ([5, 6, 7, 2], "conv: {channels: 4, kernel: [3, 2, 1], stride: [1, 2, 3], padding: valid, name: conv}",
                        conv(3, stride=(1, 2, 3))),
    "transposed_1d": ([7, 3], "conv-transpose: {channels: 4, kernel: 2, stride: 2, name: conv}", transposed(1, stride=2)),
    "transposed_2d": ([5, 4, 3], "conv-transpose: {channels: 4, kernel: 3, stride: 2, padding: 1, name: conv}",
                      transposed(2, stride=2, padding=1)),
    "transposed_2d_groups": ([5, 4, 4], "conv-transpose: {channels: 6, kernel: 3, stride: 2, padding: valid, groups: 2, name: conv}",
                             transposed(2, stride=2, groups=2)),
    "transposed_3d": ([3, 4, 2, 3], "conv-transpose: {channels: 2, kernel: 2, stride: 2, name: conv}", transposed(3, stride=2)),
    "group_norm_1d": ([11, 6], "group-norm: {groups: 3, name: norm}", norm(3)),
    "group_norm_2d": ([5, 4, 20], "group-norm: {groups: 2, name: norm}", norm(2)),
    "group_norm_3d": ([3, 4, 5, 4], "group-norm: {groups: 2, name: norm}", norm(2)),
    "instance_norm": ([5, 4, 6], "instance-norm: {name: norm}", norm(6)),
    "layer_norm": ([7, 10], "layer-norm: {name: norm}",
                   lambda x, w: f.layer_norm(x, x.shape[-1:], w["norm/scale"], w["norm/shift"], 1e-5)),
    "max_pool_1d": ([11, 3], "max-pool: {window: 3, stride: 2, padding: 1}", pooled(lambda x: f.max_pool1d(x, 3, 2, 1))),
    "max_pool_3d": ([4, 6, 4, 3], "max-pool: 2", pooled(lambda x: f.max_pool3d(x, 2))),
    "average_pool_2d": ([7, 6, 3], "average-pool: {window: 3, stride: 2, padding: 1}",
                        pooled(lambda x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False))),
    "average_pool_3d": ([4, 6, 4, 17], "average-pool: 2", pooled(lambda x: f.avg_pool3d(x, 2))),
    "global_max": ([5, 4, 6], "global-max", lambda x, w: x.flatten(1, 2).amax(1)),
    "global_average": ([5, 4, 2, 6], "global-average", lambda x, w: x.flatten(1, 3).mean(1)),
    "upsample": ([5, 4, 3], "upsample: 2", pooled(lambda x: f.interpolate(x, scale_factor=2))),
    "upsample_linear": ([5, 3], "upsample: {factor: 4, mode: linear}",
                        pooled(lambda x: f.interpolate(x, scale_factor=4, mode="linear"))),
    "upsample_bilinear": ([5, 4, 3], "upsample: {factor: [2, 3], mode: linear}",
                          pooled(lambda x: f.interpolate(x, scale_factor=(2, 3), mode="bilinear"))),
    "upsample_trilinear": ([2, 3, 4, 3], "upsample: {factor: 2, mode: linear}",
                           pooled(lambda x: f.interpolate(x, scale_factor=2, mode="trilinear"))),
    "mean": ([5, 4], "mean: {axis: 0}", lambda x, w: x.mean(1)),
    "transpose": ([5, 4], "transpose: [1, 0]", lambda x, w: x.transpose(1, 2)),
    "positions": ([5, 4], "positions: {name: places}", lambda x, w: x + w["places/table"]),
    "concatenate_places": ([5, 4], "dense: {units: 4, name: first}, concatenate: {from: [first, x], axis: 0}",
                           lambda x, w: torch.cat([x @ w["first/weight"] + w["first/bias"], x], 1)),
    "constant": ([5, 4], "constant: {shape: [2, 4], name: token}, concatenate: {from: [token, x], axis: 0}",
                 lambda x, w: torch.cat([w["token/value"].expand(len(x), 2, 4), x], 1)),
    "matmul": ([7, 5, 5], "dense: {units: 5, name: first}, matmul: {from: [x, first]}",
               lambda x, w: x @ (x @ w["first/weight"] + w["first/bias"])),
    "matmul_transposed": ([7, 5, 4], "dense: {units: 4, name: first}, matmul: {from: [first, x], transpose: yes}",
                          lambda x, w: (x @ w["first/weight"] + w["first/bias"]) @ x.mT),
    "attention": ([9, 6], "dense: {units: 24, name: joint}, attention: {heads: 2, causal: no}", attention(2, False)),
    "attention_causal": ([9, 6], "dense: {units: 24, name: joint}, attention: {heads: 2}", attention(2, True)),
    "gru": ([9, 3], "gru: {units: 5, name: cell}", lambda x, w: recurrent("gru", x, w, "cell")),
    "gru_last": ([9, 3], "gru: {units: 5, steps: last, name: cell}", lambda x, w: recurrent("gru", x, w, "cell")[:, -1]),
    "gru_both": ([9, 3], "gru: {units: 5, direction: both, name: cell}", both("gru")),
    "gru_both_last": ([9, 3], "gru: {units: 17, direction: both, steps: last, name: cell}", last_of_both("gru")),
    "lstm": ([9, 3], "lstm: {units: 5, name: cell}", lambda x, w: recurrent("lstm", x, w, "cell")),
    "lstm_both": ([9, 3], "lstm: {units: 5, direction: both, name: cell}", both("lstm")),
    "lstm_both_last": ([9, 3], "lstm: {units: 17, direction: both, steps: last, name: cell}", last_of_both("lstm")),
    **{f"function_{text.split(':')[0].replace('-', '_')}":
       ([7], f"dense: {{units: 9, name: first}}, {text}", behind("first", work)) for text, work in FUNCTIONS.items()},
    # Layers that are computed together.
    "conv_relu": ([9, 8, 3], "conv: {channels: 5, kernel: 3, activation: relu, name: conv}",
                  lambda x, w: f.relu(conv(2, padding=1)(x, w))),
    "conv_1d_relu": ([40, 1], "conv: {channels: 16, kernel: 7, activation: relu, name: conv}",
                     lambda x, w: f.relu(conv(1, padding=3)(x, w))),
    "group_norm_relu": ([5, 4, 6], "group-norm: {groups: 3, name: norm}, relu", lambda x, w: f.relu(norm(3)(x, w))),
    "convs_and_pool": ([6, 4, 8, 2], "conv: {channels: 3, kernel: 3, name: conv}, leaky-relu: 0.3, average-pool: 2, "
                       "conv: {channels: 4, kernel: 3, name: second}",
                       lambda x, w: conv(3, "second", padding=1)(
                           pooled(lambda y: f.avg_pool3d(f.leaky_relu(y, 0.3), 2))(conv(3, padding=1)(x, w), w), w)),
}


def make(name, folder):
    extents, layers, _ = CASES[name]
    random = np.random.default_rng(len(name))
    folder.mkdir()
    np.save(folder / "x.npy", random.normal(size=(SAMPLES, *extents)).astype("f4"))
    np.save(folder / "y.npy", random.normal(size=(SAMPLES, 2)).astype("f4"))
    sizes = ", ".join(["any"] * len(extents))
    flatten = "" if len(extents) == 1 else "flatten, "
    (folder / "net.yaml").write_text(f"name: {name}\ninputs: {{x: [{sizes}]}}\n"
                                     f"network: [{layers}, {flatten}dense: {{units: $outputs, name: head}}]\n")


def read(file):
    """Tensors of a safetensors file, in double."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    found = {}
    for name, about in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            assert about["dtype"] == "F32", about
            begin, end = about["data_offsets"]
            values = np.frombuffer(data[8 + size + begin:8 + size + end], "<f4")
            found[name] = torch.tensor(values.reshape(about["shape"]).astype("f8"))
    return found


def difference(name, folder, steps, rate):
    """What differs; None if nothing does."""
    work = CASES[name][2]
    begin, end = read(folder / "first.safetensors"), read(folder / "last.safetensors")
    x, y = (torch.tensor(np.load(folder / file).astype("f8")) for file in ("x.npy", "y.npy"))
    weights = {key: value.clone().requires_grad_() for key, value in begin.items()}
    optimizer = torch.optim.SGD(weights.values(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        f.mse_loss(work(x, weights).flatten(1) @ weights["head/weight"] + weights["head/bias"], y).backward()
        optimizer.step()
    for key in begin:
        moved = float((end[key] - begin[key]).abs().max())
        apart = float((end[key] - weights[key].detach()).abs().max())
        if not moved > 1e-5:
            return f"{key} has not moved: {moved}"
        if not apart < 1e-3 * moved + 3e-7:
            return f"{key} is {apart} apart, having moved by {moved}"
    return None


def main():
    torch.set_default_dtype(torch.float64)
    folder = pathlib.Path(sys.argv[2])
    differ = False
    for name in CASES:
        if sys.argv[1] == "make":
            make(name, folder / name)
        elif what := difference(name, folder / name, int(sys.argv[3]), float(sys.argv[4])):
            differ = True
            print(f"{name}: {what}")
    sys.exit(differ)


if __name__ == "__main__":
    main()
