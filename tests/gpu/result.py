#!/usr/bin/env python3
"""result.py HEADER FOLDER [FILE...]: what a run of tests/gpu/run knows so far, in one JSON.
result.py beside FILE FILE...: a Markdown table of the steps of several such files, with a pair of columns for each.

Reads HEADER and the results.jsonl, figures.jsonl and torch.jsonl of FOLDER, writes FOLDER/result.json and each FILE (whole
or not at all), and prints the table of steps: Lockstep beside the quickest way of PyTorch. README.md in results/ tells the
keys.
"""
import json
import os
import pathlib
import statistics
import sys


def records(path):
    """The objects of a file of lines; a line that is still being written is left out."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


def medians(measurements, key_of):
    """{key: median ms} of all that were measured more than once or once."""
    times = {}
    for one in measurements:
        times.setdefault(key_of(one), []).append(one["step_ms"])
    return {key: statistics.median(ms) for key, ms in times.items()}


def compare(figures, torch):
    """A row for each step of Lockstep, beside PyTorch's quickest mode at the same batch and precision."""
    ours = medians((one for one in figures if one.get("figure") == "step"),
                   lambda one: (one["workload"], one["variant"], one["precision"], one["global_batch"]))
    theirs = medians((one for one in torch if "step_ms" in one), lambda one: (
        one["workload"], one["precision"], one["batch"],
        one["mode"] + (", residual " + one["residual"] if "residual" in one else "")))
    rows = []
    for (workload, variant, precision, batch), ms in ours.items():
        row = {"workload": workload, "variant": variant, "precision": precision, "batch": batch, "lockstep_ms": ms}
        peers = [(other, key[3]) for key, other in theirs.items() if key[:3] == (workload, precision, batch)]
        if peers:
            row["torch_ms"], row["torch_mode"] = min(peers)
            row["ratio"] = row["torch_ms"] / ms
        rows.append(row)
    return rows


def beside(paths):
    """Prints the steps that all files have, in the order of the first one."""
    files = [json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in paths]
    names = [pathlib.Path(path).stem for path in paths]
    steps = [{(row["workload"], row["variant"], row["precision"], row["batch"]): row for row in file["steps"]} for file in files]
    print("| step | " + " | ".join(f"{name}, ms | PyTorch / Lockstep" for name in names) + " |")
    print("| --- |" + " --- |" * (2 * len(files)))
    for key in steps[0]:
        if not all(key in each for each in steps):
            continue
        rows = [each[key] for each in steps]
        cells = [f"{row['lockstep_ms']:.4g} | " + (f"{row['ratio']:.2f}" if "ratio" in row else "") for row in rows]
        workload, variant, precision, batch = key
        print(f"| {workload}{'' if variant == 'usual' else ', ' + variant}, {precision}, {batch} | " + " | ".join(cells) + " |")


def write(path, text):
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


def main():
    if sys.argv[1] == "beside":
        return beside(sys.argv[2:])
    header, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    figures, torch = records(folder / "figures.jsonl"), records(folder / "torch.jsonl")
    result = json.loads(header.read_text(encoding="utf-8"))
    result["torch"] = next((one["torch"] for one in torch if "torch" in one), "")
    result["checks"] = records(folder / "results.jsonl")
    result["steps"] = compare(figures, torch)
    result["figures"] = figures
    result["torch_steps"] = [one for one in torch if "workload" in one]
    text = json.dumps(result, indent=1) + "\n"
    for path in [folder / "result.json", *map(pathlib.Path, sys.argv[3:])]:
        write(path, text)
    line = "{:<16} {:<8} {:<9} {:>6} {:>12} {:>12}  {:<24} {:>6}"
    if result["steps"]:
        print(line.format("ms per step", "", "precision", "batch", "lockstep", "torch", "mode of torch", "ratio"))
    for row in result["steps"]:
        known = "ratio" in row
        print(line.format(row["workload"], row["variant"].replace("usual", ""), row["precision"], row["batch"],
                          f"{row['lockstep_ms']:.5g}", f"{row['torch_ms']:.5g}" if known else "-",
                          row["torch_mode"] if known else "-", f"{row['ratio']:.2f}" if known else "-"))


if __name__ == "__main__":
    main()
