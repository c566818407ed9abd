#!/usr/bin/env python3
"""check_papers.py TREE [PROGRAM]: are the documents (*.md) of TREE right about what can be looked up?

Every relative link leads to a file, every anchor to a heading, and prose has at most 140 columns. With PROGRAM (lockstep)
every option that a document names is one of the program, of a script of the tree or of the tools listed below. In the
folders listed as PLAIN no comment begins with a word that puts its subject last. Prints each fault as FILE:LINE: REASON and
ends with 1 when there is one, with 2 when it could not look.
"""
import io
import pathlib
import re
import subprocess
import sys
import tokenize

COLUMNS = 140
COMMANDS = ["", "pack", "tokenizer train", "train", "eval", "predict", "generate", "export", "import", "check", "info", "sweep", "report", "plot",
            "bench step", "bench scale", "bench all-reduce", "bench checkpoint", "bench input", "help"]
SCRIPTS = ["app/quickstart", "tests/run", "tests/gpu/run", "tests/gpu/bundle", "tests/gpu/kit", "tests/learning/run",
           "tests/torture/run", "tests/torture/mutate",
           "tests/peers/compare_step.py", "tests/peers/tensorflow_replica.py",
           "tests/cluster/simulation/project run", "tests/cluster/simulation/project compare"]
FOREIGN = {
    "cmake, ctest": "--preset --build --install --prefix --target --test-dir --config",
    "eb, spack": "--robot --no-checksum",
    "sbatch, srun": "--nodes --ntasks-per-node --cpus-per-task --gpus-per-node --gpus-per-task --time --partition --account"
                    " --array --signal --open-mode --mpi --cpu-bind --requeue",
    "mpirun": "--bind-to --map-by --hostfile --oversubscribe",
    "apptainer": "--bind",
    "tensorboard": "--logdir",
    "app/examples/unet/make.py": "--extents --samples --seed --out",
}
PLAIN = ["app", "comm", "io", "model", "slurm", "tests/app", "tests/cli", "tests/cluster", "tests/comm",
         "tests/golden", "tests/gpu", "tests/io", "tests/learning", "tests/model", "tests/mpi", "tests/networks",
         "tests/peers", "tests/support", "tests/torture"]
OPENING = re.compile(r"(Of|Where|What|Who|That|Whether|How)\b")
ENDING = re.compile(r"(of|where|what|who|that|whether) ")  # a trailing comment continues its line's name with it
MARK = re.compile(r"///<|///|//|/\*\*?|#+")
C_SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".hpp"}
C_TOKEN = re.compile(r'R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|'
                     r"(?<!\w)'(?:\\.|[^'\\\n])+'|(?P<comment>//[^\n]*|/\*.*?\*/)", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--(\[no-\])?([a-z][a-z0-9-]*)")


def documents(tree):
    return [path for path in sorted(tree.rglob("*.md"))
            if not {"build", "data", "runs", ".git"} & set(path.relative_to(tree).parts)]


def anchor(heading):
    """As GitHub makes it: lower case, spaces to dashes, no punctuation."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def lines_of(path):
    """[(number, line, whether it is code)]"""
    code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            code = not code
            continue
        yield number, line, code or line.startswith("    ")


def anchors(path):
    return {anchor(line.lstrip("#")) for _, line, code in lines_of(path) if not code and line.startswith("#")}


def link_faults(tree, path):
    for number, line, code in lines_of(path):
        if code:
            continue
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, heading = target.partition("#")
            file = (path.parent / name).resolve() if name else path
            if not file.exists() or not file.is_relative_to(tree):
                yield number, f"links to {target}, which is not there"
            elif heading and heading not in anchors(file):
                yield number, f"links to {target}: no heading is called so"


def width_faults(_, path):
    for number, line, code in lines_of(path):
        if not code and "results" not in path.parts and not line.startswith("|") and len(line) > COLUMNS:
            yield number, f"has {len(line)} columns, more than {COLUMNS}"


def output_of(command):
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if run.returncode:
        print(f"check_papers.py: {' '.join(map(str, command))} ended with {run.returncode}: {run.stderr}", file=sys.stderr)
        sys.exit(2)
    return run.stdout


def known_options(tree, program):
    helps = [output_of([program, *command.split(), "--help"]) for command in COMMANDS]
    for network in (tree / "model" / "networks").glob("*.*"):
        helps.append(output_of([program, "train", "--model", network.stem, "--help"]))
    for network in (tree / "app" / "examples").glob("*/*.yaml"):
        helps.append(output_of([program, "train", "--model", network, "--help"]))
    helps += [output_of([tree / script.split()[0], *script.split()[1:], "--help"]) for script in SCRIPTS
              if (tree / script.split()[0]).exists()]
    names = {"version", "help"}
    for text in [*helps, *FOREIGN.values()]:
        for negated, name in OPTION.findall(text):
            names |= {name, "no-" + name} if negated else {name}
    return names


def option_faults(known, path):
    for number, line, _ in lines_of(path):
        for _, name in OPTION.findall(line):
            if name not in known:
                yield number, f"names --{name}, which no --help lists"


def comment_starts(path, text):
    """Offsets of the comments of a source or script."""
    if path.suffix in C_SUFFIXES:
        return [found.start() for found in C_TOKEN.finditer(text) if found["comment"]]
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    if path.suffix == ".py" or "python" in lines[0]:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return [starts[token.start[0] - 1] + token.start[1] for token in tokens
                if token.type == tokenize.COMMENT and not token.string.startswith("#!")]
    found = []  # shell, CMake, suppressions: the first # of a line outside of quotation marks
    for start, line in zip(starts, lines):
        marks = [mark.start() for mark in re.finditer(r"(?<!\S)#(?!!)", line)
                 if not any(line[:mark.start()].count(quote) % 2 for quote in "'\"")]
        found += [start + mark for mark in marks[:1]]
    return found


def opening_faults(path):
    """A block of full-line comments is one comment, and each of its paragraphs has an opening."""
    text = path.read_text(encoding="utf-8")
    before = None  # line, column and mark of the preceding comment line, unless it ended a paragraph
    for start in comment_starts(path, text) if text else ():
        line_start = text.rfind("\n", 0, start) + 1
        number, column = text.count("\n", 0, start) + 1, start - line_start
        is_trailing = bool(text[line_start:start].strip())
        mark = MARK.match(text, start)[0]
        words = text[start + len(mark):].split("\n", 1)[0].strip()
        continues = not is_trailing and before == (number - 1, column, mark)
        before = None if words in ("", "\\file") else (number, column, mark)
        found = None if continues else OPENING.match(words) or (ENDING.match(words) if is_trailing else None)
        if found:
            yield number, f"has a comment that begins with '{found[1]}': put the subject first"


def sources(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (path.suffix in C_SUFFIXES | {".py", ".sh", ".supp"} or path.name == "CMakeLists.txt"
                               or not path.suffix and path.read_bytes().startswith(b"#!")):
            yield path


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    tree = pathlib.Path(sys.argv[1]).resolve()
    papers = documents(tree)
    if not papers:
        print(f"check_papers.py: {tree} has no documents", file=sys.stderr)
        return 2
    faults = [(path, *fault) for path in papers for check in (link_faults, width_faults) for fault in check(tree, path)]
    for folder in PLAIN:
        if not (tree / folder).is_dir():
            print(f"check_papers.py: {tree} has no folder {folder}", file=sys.stderr)
            return 2
        faults += [(path, *fault) for path in sources(tree / folder) for fault in opening_faults(path)]
    if len(sys.argv) == 3:
        known = known_options(tree, sys.argv[2])
        faults += [(path, *fault) for path in papers for fault in option_faults(known, path)]
    for path, number, reason in faults:
        print(f"{path.relative_to(tree)}:{number}: {reason}")
    if not faults:
        print(f"documents: {len(papers)} without a fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
