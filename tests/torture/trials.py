"""One trial of each kind: a job is disturbed at a moment and in a way that a seed decides, and judged by what it leaves."""

import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

STEPS = 400
CRASHES = re.compile(r"[Ss]egmentation fault|on signal ([4678]|11)\b|terminate called|Assertion|Sanitizer|corrupted|free\(\)")
OWN_WORDS = re.compile(r"^lockstep( [a-z -]+)?: ", re.MULTILINE)


class Finding(Exception):
    """What a trial found. `kind` is a column of the table."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


def end_with_parent():
    """In a child: whoever ends this process ends its jobs; app/launch sees to what it has started."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Job:
    """A program under way, with all processes that came of it, wherever they hang by now."""

    limit = 60  # seconds for a disturbed job to end; its own deadline is 10

    def __init__(self, command, folder, environment=None):
        self.mark = f"LOCKSTEP_TORTURE={os.getpid()}.{random.getrandbits(64):x}"
        name, value = self.mark.split("=")
        self.command = [str(word) for word in command]
        self.out, self.err = folder / "out", folder / "err"
        left = folder / ".launcher"  # a killed launcher's leftovers, which go with the folder
        left.mkdir(exist_ok=True)
        places = {"TMPDIR": str(left), "OMPI_MCA_btl_vader_backing_directory": str(left)}
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(self.command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            start_new_session=True, preexec_fn=end_with_parent,
                                            env={**os.environ, **places, **(environment or {}), name: value})

    def processes(self):
        """{pid: command line} of all that carry the mark and run."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as environ:
                    if self.mark.encode() not in environ.read().split(b"\0"):
                        continue
                with open(f"/proc/{pid}/cmdline", "rb") as line:
                    words = line.read().split(b"\0")
                if words != [b""]:  # a zombie has none
                    found[int(pid)] = words
            except OSError:
                continue
        return found

    def ranks(self, program):
        own = os.fsencode(str(program))
        return sorted(pid for pid, words in self.processes().items() if words[0] == own)

    def send(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def running(self):
        return self.process.poll() is None

    def finish(self, more=0):
        """The exit code, once nothing of it is left. Whatever is still there after the limit is killed and told."""
        limit = self.limit + more
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if not self.running() and not self.processes():
                if CRASHES.search(self.said()) or -self.process.returncode in (4, 6, 7, 8, 11):
                    raise Finding("crash", f"exit {self.process.returncode}: {self.said()[-600:]}")
                return self.process.returncode
            time.sleep(0.02)
        left = self.processes()
        self.kill()
        raise Finding("hang", f"after {limit} s these were left: {sorted(left)}; it said: {self.said()[-600:]}")

    def kill(self):
        while left := self.processes():
            for pid in left:
                self.send(pid, signal.SIGKILL)
            time.sleep(0.02)
        self.process.wait()

    def said(self):
        return self.out.read_text(errors="replace")[-2000:] + self.err.read_text(errors="replace")


class Trial:
    """A folder, a job's options, and the run that nobody disturbed to compare with."""

    def __init__(self, bench, seed, folder):
        self.bench = bench
        self.random = random.Random(seed)
        self.folder = folder
        self.ranks = self.random.choice([1, 1, 2, 3])
        self.setting = self.random.choice(sorted(bench.settings))
        self.run = folder / "run"
        self.log = []

    def train(self, run=None, resume=False, every=None):
        self.every = every or self.random.choice([1, 4, 15, 60])
        words = self.bench.train(self.ranks, self.setting, run or self.run) + ["--checkpoint-every", self.every]
        self.log.append(" ".join(str(word) for word in words + (["--resume"] if resume else [])))
        return Job(words + (["--resume"] if resume else []), self.folder)

    def some_moment(self, job):
        """Waits until then; false: the job was faster."""
        end = time.monotonic() + self.random.uniform(0, 1.1) * self.bench.seconds(self.ranks, self.setting)
        while time.monotonic() < end:
            if not job.running():
                return False
            time.sleep(0.002)
        return job.running()

    def note(self, text):
        self.log.append(text)

    def judge_leavings(self):
        """What a disturbed job leaves can be read: the newest checkpoint, and every other that has its name."""
        latest = self.run / "checkpoints" / "latest"
        if latest.is_symlink() and not latest.exists():
            raise Finding("lost", "latest points to nothing")
        if not latest.exists():
            return
        told = self.bench.lockstep("info", self.run / "checkpoints" / os.readlink(latest))
        if told.returncode != 0:
            raise Finding("lost", f"the newest checkpoint is damaged: {told.stderr}")

    def finish_it(self):
        """Goes on to the end, without a disturbance: the same weights and validations as the run that had none."""
        job = self.train(resume=True)
        code = job.finish(3 * self.bench.seconds(self.ranks, self.setting))
        if code != 0:
            raise Finding("lost", f"the resumed run ended with {code}: {job.said()[-800:]}")
        reference = self.bench.reference(self.ranks, self.setting)
        if self.bench.weights(self.run) != self.bench.weights(reference):
            raise Finding("different", "other weights than those of the run that nobody disturbed")
        if validations(self.run) != validations(reference):
            raise Finding("different", "metrics.jsonl lacks validations, or has others")
        strays = [file.name for file in self.run.rglob(".*")]
        if strays:
            raise Finding("litter", f"left in the run folder: {strays}")

    def own_sentence(self, job, code):
        if code not in (0, 75) and not OWN_WORDS.search(job.said()):
            raise Finding("mute", f"exit {code} without a word: {job.said()[-600:]}")


def validations(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    steps = [record["step"] for record in records if record["kind"] == "train"]
    if len(set(steps)) != len(steps):
        raise Finding("different", "metrics.jsonl has a step twice")
    return [(record["step"], record["loss"]) for record in records if record["kind"] == "validation"]


def kills(trial):
    """kill -9 of a rank, of all, or of the launcher, up to three times in a row."""
    count = 0
    for attempt in range(trial.random.randint(1, 3)):
        job = trial.train(resume=attempt > 0)
        if not trial.some_moment(job):
            job.finish()
            break
        ranks = job.ranks(trial.bench.program)
        victim = trial.random.choice(["rank", "all", "launcher"])
        victims = {"rank": trial.random.sample(ranks, min(1, len(ranks))), "all": list(job.processes()),
                   "launcher": [job.process.pid]}[victim]
        trial.note(f"kill -9 {victim}")
        for pid in victims:
            job.send(pid, signal.SIGKILL)
        job.finish()
        trial.judge_leavings()
        count += 1
    trial.finish_it()
    return count


def storms(trial):
    """Many signals, milliseconds apart, to ranks and launcher: each asks for the same orderly stop."""
    job = trial.train()
    trial.some_moment(job)
    numbers, to_launcher = [], False
    for _ in range(trial.random.randint(2, 25)):
        ranks = job.ranks(trial.bench.program)
        if not job.running() or not ranks:
            break
        if trial.ranks > 1 and trial.random.random() < 0.1:
            ranks, to_launcher = [job.process.pid], True
        number = trial.random.choice([signal.SIGTERM, signal.SIGUSR1] + [signal.SIGUSR2] * bool(numbers) + [signal.SIGINT] * (not numbers))
        numbers.append(number)
        job.send(trial.random.choice(ranks), number)
        time.sleep(trial.random.uniform(0, 0.05))
    trial.note("signals " + " ".join(number.name for number in numbers) + (" (launcher, too)" if to_launcher else ""))
    code = job.finish()
    begun = trial.run.exists() or job.out.stat().st_size > 0  # before its first line a signal ends a process
    if code not in (0, 75) and begun and not to_launcher:
        raise Finding("lost", f"exit {code} instead of 75: {job.said()[-600:]}")
    trial.judge_leavings()
    trial.finish_it()
    return 1


def disks(trial):
    """The disk below the run folder is small, fills up, refuses new files, or loses the folder."""
    how = trial.random.choice(["small", "filled", "locked", "gone"])
    trial.note(f"disk {how}")
    trial.run.mkdir()
    if how != "locked" and not mounted(trial.run, trial.random.randint(16, 400) if how == "small" else 65536):
        return 0  # skipped: not root
    try:
        job = trial.train()
        if how != "small" and trial.some_moment(job):
            disturb(trial.run, how)
        code = job.finish()
        trial.own_sentence(job, code)
        if code not in (0, 1):
            raise Finding("lost", f"exit {code} instead of 1: {job.said()[-600:]}")
        if how == "locked":
            subprocess.run(["chattr", "-R", "-i", trial.run], capture_output=True)
        else:
            subprocess.run(["mount", "-o", "remount,size=64m", trial.run], check=True, capture_output=True)
        trial.judge_leavings()
        if how == "gone":
            empty(trial.run)
        trial.finish_it()
    finally:
        subprocess.run(["chattr", "-R", "-i", trial.run], capture_output=True)
        subprocess.run(["umount", "-l", trial.run], capture_output=True)
    return 1


def mounted(folder, kilobytes):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder],
                          capture_output=True).returncode == 0


def disturb(run, how):
    if how == "gone":
        empty(run)
    elif how == "filled":
        used = os.statvfs(run)
        kilobytes = (used.f_blocks - used.f_bfree) * used.f_frsize // 1024 + 4
        subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", run], capture_output=True)
    else:  # root ignores read-only modes, and a mount with open files cannot become read-only
        for folder in (run / "checkpoints", run):
            subprocess.run(["chattr", "+i", folder], capture_output=True)


def empty(folder):
    for entry in list(folder.iterdir()):
        shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def owners(trial):
    """A second job takes the folder of one that still runs: one of the two goes on, and the weights are right."""
    first = trial.train()
    if not trial.some_moment(first):
        first.finish()
    else:
        other = trial.folder / "other"
        other.mkdir()
        trial.folder, first_folder = other, trial.folder
        second = trial.train(resume=True)
        trial.folder = first_folder
        codes = [second.finish(), first.finish()]
        trial.note(f"exit codes of the second and the first: {codes}")
        if codes[0] != 0:
            raise Finding("lost", f"the second job ended with {codes[0]}: {second.said()[-600:]}")
        if codes[1] not in (0, 1):
            raise Finding("lost", f"the first job ended with {codes[1]}: {first.said()[-600:]}")
        trial.own_sentence(first, codes[1])
    trial.judge_leavings()
    trial.finish_it()
    return 1


KINDS = {"kills": kills, "storms": storms, "disks": disks, "owners": owners}
