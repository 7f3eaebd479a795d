"""What tools/gpu-train, tools/gpu-losses and tools/gpu-plans share: where orrery is, what a scenario says, runs of both sides."""
import datetime
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASELINE = os.path.join(ROOT, "tests", "gpu", "torch_baseline.py")


class Failed(Exception):
    """One side did not run; the text says which and why."""


def add_common(parser):
    parser.add_argument("--bundle", help="folder made by tools/bundle; default: build/orrery, or what ORRERY names")
    parser.add_argument("--output", default=os.environ.get("OUT", os.path.join(ROOT, "out")),
                        help="folder for results and logs; default: $OUT, or out")
    parser.add_argument("--backend", default="cuda", help="of orrery run; default: cuda")


def program_of(options):
    if options.bundle:
        program = os.path.join(options.bundle, "bin", "orrery")
    else:
        program = os.environ.get("ORRERY", os.path.join(ROOT, "build", "orrery"))
    if not os.access(program, os.X_OK):
        sys.exit(f"{program} isn't there: build orrery, or name a bundle with --bundle")
    return os.path.abspath(program)


def corpus_of(program):
    """The text that comes with the program."""
    return os.path.join(os.path.dirname(program), "orrery-corpus.txt")


class Scenario:
    """Of a file under scenarios/ by its name; reads the few flat keys that PyTorch needs to know."""

    def __init__(self, name):
        self.name, self.file = name, os.path.join(ROOT, "scenarios", name + ".yaml")
        if not os.path.exists(self.file):
            sys.exit(f"{self.file}: there is no such scenario")
        with open(self.file, encoding="utf-8") as file:
            self.text = file.read()
        self.model = os.path.join(ROOT, "scenarios", self.value("model"))
        self.sequence, self.batch = int(self.value("sequence")), int(self.value("global_batch"))
        gpus = re.search(r"gpus_per_node: *(\d+)", self.text)
        self.gpus = int(gpus.group(1)) if gpus else 1
        with open(self.model, encoding="utf-8") as file:
            self.vocab = json.load(file)["vocab_size"]

    def value(self, key):
        found = re.search(rf"^ *{key}: *(\S+)", self.text, re.MULTILINE)
        if not found:
            sys.exit(f"{self.file}: no key {key}")
        return found.group(1)


def tail(text, lines=8):
    return "\n".join(text.strip().splitlines()[-lines:])


def environments(ranks, one_gpu=False):
    """What each rank of a run on this machine is told, as a launcher would. `one_gpu`: each as the only one of its host."""
    if ranks == 1:
        return [dict(os.environ)]
    if os.environ.get("NCCL_NVLS_ENABLE") != "0":
        sys.exit("set NCCL_NVLS_ENABLE=0: orrery's collectives do without multicast, so both sides do")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    def told(rank):
        local = dict(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks))
        if one_gpu:
            local = dict(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", NCCL_HOSTID=f"rank{rank}", NCCL_SOCKET_IFNAME="lo",
                         NCCL_IB_DISABLE="1")
        return dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                    **local)

    return [told(rank) for rank in range(ranks)]


def run_ranks(command, ranks, timeout_s, one_gpu=False):
    """The command once for each rank. RAISES Failed with what was written to standard error."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        started = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                                    env=environment) for environment in environments(ranks, one_gpu)]
        end = time.time() + timeout_s
        try:
            codes = [rank.wait(max(0.1, end - time.time())) for rank in started]
        except subprocess.TimeoutExpired:
            codes = [None]
        finally:
            for rank in started:
                rank.kill()  # Does nothing to those that have ended.
                rank.wait()
        if any(code != 0 for code in codes):
            log.seek(0)
            why = f"not done after {timeout_s:.0f} s" if None in codes else f"exit status {max(codes, key=abs)}"
            raise Failed(f"{why}: {' '.join(command)}\n{tail(log.read())}")


def run_orrery(program, scenario, steps, options, settings, timeout_s, one_gpu=False):
    """The JSON of `orrery run` and the command."""
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "run.json")
        command = [program, "run", scenario.file, "--backend", options.backend, "--steps", str(steps), "--json", result]
        for setting in settings:
            command += ["--set", setting]
        run_ranks(command, scenario.gpus, timeout_s, one_gpu)
        with open(result, encoding="utf-8") as file:
            return json.load(file), " ".join(command)


def baseline_command(what, scenario, arguments):
    return [sys.executable, BASELINE, what, "--model", scenario.model, "--sequence", str(scenario.sequence), *arguments]


def output_of(*command):
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""


def commit_of(options):
    known = output_of("git", "-C", ROOT, "rev-parse", "--short", "HEAD")
    if options.bundle and os.path.exists(os.path.join(options.bundle, "COMMIT")):
        with open(os.path.join(options.bundle, "COMMIT"), encoding="utf-8") as file:
            known = file.read().strip()  # What runs is the bundle, whatever the tree is at.
    return known or "unknown"


def machine():
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total,power.limit", "--format=csv,noheader")
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return {"gpus": gpu.splitlines(), "processor": f"{names[0] if names else 'unknown'}, {os.cpu_count()} cores"}


def header(options, command):
    return {"date": str(datetime.date.today()), "commit": commit_of(options), "machine": machine(),
            "command": " ".join(command)}


def write(folder, name, values):
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, name)
    with open(file + ".part", "w", encoding="utf-8") as out:
        json.dump(values, out, indent=1)
        out.write("\n")
    os.replace(file + ".part", file)  # A run that is ended half-way leaves the last whole result.
    return file
