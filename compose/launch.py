# Made by `torchyard render`; do not edit.
"""launch.py SCRIPT [ARGUMENTS]: runs a training script with torchrun, one process a rank, as the stack's settings say.

It raises the soft limits to the hard ones, shares the CPUs that the control group allows among the ranks, names the
network interface, waits for the other node, prefixes each line by its rank, and when a rank fails it ends all, with the
error of the rank that failed first last, and with that rank's exit code. It needs only what an image has.
"""

import contextlib
import errno
import glob
import json
import logging
import os
import re
import resource
import signal
import socket
import sys
import tempfile
import time

BAD, INPUT, SURROUNDINGS = 1, 2, 3  # exit codes: the job failed, a setting is wrong, the machine does not give it
JOIN_WITHIN = 300  # seconds in which the nodes have to meet
LOST = 3  # seconds that a node waits before it says that the first one is gone
NAME_WITHIN = 60  # seconds in which the name of a node has to resolve; its container may start later than this one
TAIL = 25  # lines of a rank's standard error that are shown where Python left no traceback
CAUSES = (
    (r"[Bb]us error|No space left on device.*shm|unable to (open|write|mmap).*shared memory",
     "shared memory is full: /dev/shm has {shm}; set TORCHYARD_SHM in .env to more, or `shm` of the entry in env.yaml"),
    (r"CUDA out of memory|CUDA error: out of memory",
     "the GPU's memory is full: a smaller batch a step, with gradient accumulation for the rest"),
)  # fmt: skip


class Problem(Exception):
    """Something that the user can mend: what, a hint and an exit code."""

    def __init__(self, what, hint, code):
        super().__init__(what)
        self.what, self.hint, self.code = what, hint, code


def setting(name, default, least=0):
    """A whole number of the environment."""
    text = os.environ.get(name, "") or str(default)
    if not text.isdigit() or int(text) < least:
        raise Problem(f"{name} is {text!r}, a whole number from {least} on is wanted", "mend it in .env", INPUT)
    return int(text)


def raise_limits():
    """Have what may be locked, opened and stacked at the most that this container's hard limits allow."""
    for name in ("RLIMIT_MEMLOCK", "RLIMIT_NOFILE", "RLIMIT_STACK"):
        number = getattr(resource, name)
        _, hard = resource.getrlimit(number)
        if name == "RLIMIT_STACK" and hard == resource.RLIM_INFINITY:
            continue  # threads would get stacks of that size
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(number, (hard, hard))


def locked_memory():
    """What to say where a rank cannot lock all the memory it wants; its limit is the container's, not the host's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return ""
    return (
        f"each rank can lock {soft >> 10} KiB of memory, {hard >> 10} at most; NCCL over InfiniBand wants it unlimited."
        " A container has this limit of its engine's service, not of limits.conf or of a shell: LimitMEMLOCK=infinity"
        " for that service, or TORCHYARD_LIMITS=raised in .env where it may raise limits; then start the job anew"
    )


def cpus(root="/"):
    """How many CPUs this container may use: its affinity, and at most the quota of its control group, never 0."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for quota, period in (_version_2(root), _version_1(root)):
        if quota and period and quota > 0:
            allowed = min(allowed, max(1, quota // period))
    return max(1, allowed)


def _version_2(root):
    words = _text(root, "sys/fs/cgroup/cpu.max").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 and words[0].isdigit() else (0, 0)


def _version_1(root):
    quota, period = (_text(root, f"sys/fs/cgroup/cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return (int(quota), int(period)) if quota.isdigit() and period.isdigit() else (0, 0)


def _text(root, path):
    try:
        with open(os.path.join(root, path)) as file:
            return file.read()
    except OSError:
        return ""


def threads(cpu_count, ranks):
    """CPU threads of one process."""
    return max(1, cpu_count // max(1, ranks))


def fill(name, value):
    """Set an environment variable that the user has not set."""
    if not os.environ.get(name):
        os.environ[name] = value


def check_script(script):
    """Raise where there is no such script."""
    if script not in ("-m", "--module") and not os.path.isfile(script):
        raise Problem(
            f"there is no script {script} in {os.getcwd()}",
            "name one from the repository's top: ./yard up -- train.py, or TORCHYARD_TRAIN=train.py docker compose up",
            INPUT,
        )


def check_gpus(processes, visible):
    """Raise where there are fewer GPUs than processes: two on one GPU would wait for each other in NCCL for ever."""
    if processes > visible:
        raise Problem(
            f"{processes} processes, but this container sees {visible} GPU{'' if visible == 1 else 's'}",
            f"one process a GPU: TORCHYARD_PROCESSES={max(visible, 1)}, or more devices: ./yard up --devices 0,1",
            INPUT,
        )


def resolve(host, within, clock=time.monotonic, sleep=time.sleep):
    """The IPv4 address of a node, as soon as its name resolves."""
    deadline = clock() + within
    while True:
        try:
            return socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
        except socket.gaierror as error:
            if clock() > deadline:
                raise Problem(
                    f"the name {host} does not resolve within {within} s: {error}",
                    "the first node has that name: see that its service runs, in the same network",
                    SURROUNDINGS,
                )
        sleep(0.5)


def wait_for_port(address, port, within, clock=time.monotonic, sleep=time.sleep):
    """Return when something listens there."""
    deadline = clock() + within
    while True:
        try:
            socket.create_connection((address, port), timeout=2).close()
            return
        except OSError as error:
            if clock() > deadline:
                raise Problem(
                    f"nothing answers on {address} port {port} within {within} s: {error}",
                    "the first node listens there: see whether it runs, and what it says",
                    SURROUNDINGS,
                )
        sleep(0.2)


def interface(address):
    """The network interface from which this address is reached, empty where none of ours has it."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                told = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
                if socket.inet_ntoa(told[20:24]) == own:
                    return name
    return ""


def name_interface(name):
    """Have gloo and NCCL use this network interface; without the equals sign NCCL takes every one that begins so."""
    fill("GLOO_SOCKET_IFNAME", name)
    fill("NCCL_SOCKET_IFNAME", f"={name}")


def check_own(host, address, port):
    """Raise where the first node cannot listen there: the address is another machine's, or the port is taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what closed lately does not count
        try:
            probe.bind((address, port))
            probe.listen()
            return
        except OSError as error:
            why = error
    if why.errno == errno.EADDRINUSE:
        raise Problem(
            f"port {port} of {address} is in use on the first node{holder(port)}",
            f"end what holds it, or name a free one for all nodes: TORCHYARD_RENDEZVOUS={host}:{free_port(address)}",
            SURROUNDINGS,
        )
    raise Problem(
        f"the first node has to listen on {host} ({address}) port {port} and cannot: {why}",
        "name this node as the others reach it: TORCHYARD_RENDEZVOUS=name:port",
        SURROUNDINGS,
    )


def free_port(address):
    """A port on which nothing listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def holder(port, root="/proc"):
    """Which process listens on this port, in words; empty where it is not ours to see."""
    wanted = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in _text(root, table).splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                wanted.add(f"socket:[{words[9]}]")
    for path in glob.glob(os.path.join(root, "[0-9]*/fd/*")):
        with contextlib.suppress(OSError):
            if os.readlink(path) in wanted:
                pid = os.path.relpath(path, root).split(os.sep)[0]
                return f", by process {pid} ({_text(root, f'{pid}/comm').strip()})"
    return ""


def rendezvous(nodes, node):
    """torchrun's options for where the nodes meet; on another node than the first, waits until that one listens."""
    if nodes == 1:
        name_interface("lo")
        return ["--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--nnodes=1"]
    endpoint = os.environ.get("TORCHYARD_RENDEZVOUS", "")
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        raise Problem(f"TORCHYARD_RENDEZVOUS is {endpoint!r}", "name the first node and a port: node0:29400", INPUT)
    if ":" in host:
        raise Problem(
            f"TORCHYARD_RENDEZVOUS is {endpoint!r}, an IPv6 address; the nodes meet by IPv4",
            "take a name or an IPv4 address of the first node: node0:29400; fe80:: ones hold on one link only",
            INPUT,
        )
    within = setting("TORCHYARD_JOIN_WITHIN", JOIN_WITHIN, least=1)
    address = resolve(host, min(within, NAME_WITHIN))
    name = interface(address)
    if name:
        name_interface(name)
    if node:
        wait_for_port(address, int(port), within)
    else:
        check_own(host, address, int(port))
    conf = f"is_host={'false' if node else 'true'},join_timeout={within},timeout={within}"
    return [
        "--rdzv_backend=c10d", f"--rdzv_endpoint={address}:{port}", f"--rdzv_conf={conf}",
        "--rdzv_id=torchyard", f"--nnodes={nodes}",
    ]  # fmt: skip


def options(parser, nodes, node, processes, logs):
    """torchrun's options, those that this version of torch knows."""
    known = {word for action in parser._actions for word in action.option_strings}
    wanted = [
        *rendezvous(nodes, node),
        f"--nproc_per_node={processes}", f"--max_restarts={setting('TORCHYARD_RESTARTS', 0)}",
        "--monitor_interval=0.2", "--role=rank", f"--log_dir={logs}", "--redirects=3", "--tee=3",
    ]  # fmt: skip
    if nodes == 1:
        wanted.append("--local_addr=127.0.0.1")
    return [word for word in wanted if word.partition("=")[0] in known]


def tracebacks(folder):
    """What sitecustomize.py wrote for each rank that raised: rank to (time, text), of the last attempt."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(path) as file:
                told = json.load(file)
            if told["attempt"] >= found.get(told["rank"], (0, "", -1))[2]:
                found[told["rank"]] = (told["time"], told["text"], told["attempt"])
    return {rank: (when, text) for rank, (when, text, _) in found.items()}


def first(failures, raised):
    """The rank whose failure brought the others down: one that a signal killed, else the one that raised first."""
    killed = [rank for rank in failures if failures[rank] < 0 and -failures[rank] != signal.SIGTERM]
    if killed:
        return killed[0]
    timed = sorted((raised[rank][0], rank) for rank in failures if rank in raised)
    return timed[0][1] if timed else next(iter(failures))


def told(rank, ranks, code, text, causes):
    """The last words of a job: the failing rank's error, and what it means."""
    last = text.rstrip().splitlines()[-1].strip() if text.strip() else ""
    how = f"was killed by {name_of(-code)}" if code < 0 else f"ended with exit code {code}"
    line = f"error: rank {rank} of {ranks} {how}" + (f": {last}" if last and code >= 0 else "")
    return "\n".join(part for part in ["", text.rstrip(), line, *(" hint: " + cause for cause in causes)] if part)


def name_of(number):
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def causes(text, code, shm, oom):
    """What is known of such an end."""
    found = [what.format(shm=shm) for pattern, what in CAUSES if re.search(pattern, text)]
    if code == -signal.SIGBUS and not found:
        found = [CAUSES[0][1].format(shm=shm)]
    if code == -signal.SIGKILL and oom:
        found.append("the kernel killed it for want of memory: fewer loader workers, a smaller batch, or more memory")
    return found


def shm_size():
    """The size of /dev/shm in words."""
    try:
        stat = os.statvfs("/dev/shm")
    except OSError:
        return "an unknown size"
    return f"{stat.f_blocks * stat.f_frsize >> 20} MiB"


def oom_kills():
    """How many processes of this container the kernel killed for want of memory."""
    for path in ("sys/fs/cgroup/memory.events", "sys/fs/cgroup/memory/memory.oom_control"):
        for line in _text("/", path).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def tail(logs, local_rank):
    """The last lines that a rank wrote to standard error."""
    pattern = os.path.join(logs, "**", str(local_rank), "stderr.log")
    files = sorted(glob.glob(pattern, recursive=True), key=os.path.getmtime)
    if not files:
        return ""
    with open(files[-1], errors="replace") as file:
        return "\n".join(file.read().splitlines()[-TAIL:])


def failed(error, ranks, logs, errors):
    """Print the error of the rank that failed first, last; answers its exit code (1 for a signal)."""
    codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
    raised = tracebacks(errors)
    rank = first(codes, raised)
    code = codes[rank]
    text = raised[rank][1] if rank in raised and code >= 0 else tail(logs, error.failures[rank].local_rank)
    words = causes(text + tail(logs, error.failures[rank].local_rank), code, shm_size(), oom_kills())
    sys.stdout.flush()
    time.sleep(0.2)  # both streams have a reader of their own; this is to be the last
    print(told(rank, ranks, code, text, words), file=sys.stderr, flush=True)
    return code if code > 0 else BAD


def prepare(processes):
    """What the ranks inherit; processes are all that share the CPUs."""
    raise_limits()
    fill("OMP_NUM_THREADS", str(threads(cpus(), processes)))
    fill("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank${rank}]: ")
    os.environ["PYTHONUNBUFFERED"] = "1"
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    os.environ["TORCHYARD_LAUNCHER"] = str(os.getpid())


def run(words):
    """Run the job to its end; answers the exit code."""
    processes, nodes = setting("TORCHYARD_PROCESSES", 1, least=1), setting("TORCHYARD_NODES", 1, least=1)
    node = setting("TORCHYARD_NODE", 0)
    check_script(words[0])
    prepare(processes * nodes)  # the nodes of a rehearsal are on one machine
    loud = os.environ.get("TORCH_CPP_LOG_LEVEL")
    fill("TORCH_CPP_LOG_LEVEL", "ERROR")  # of this process: at the end it would tell that the other node has gone
    import torch
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError, RendezvousTimeoutError

    if loud is None:
        del os.environ["TORCH_CPP_LOG_LEVEL"]
    if os.environ.get("TORCHYARD_DEVICES", "none") != "none":
        check_gpus(processes, torch.cuda.device_count())
        if told_of := locked_memory():
            print(told_of, file=sys.stderr, flush=True)
    folder = tempfile.mkdtemp(prefix="torchyard-")  # goes with the container
    errors, logs = os.path.join(folder, "errors"), os.path.join(folder, "logs")
    os.mkdir(errors)
    os.environ["TORCHYARD_ERRORS"] = errors
    parser = torchrun.get_args_parser()
    chosen = parser.parse_args([*options(parser, nodes, node, processes, logs), *words])
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the end is told below, once
    try:
        torchrun.run(chosen)
    except ChildFailedError as error:
        return failed(error, processes * nodes, logs, errors)
    except SignalException as error:
        return 128 + int(error.sigval)
    except RendezvousTimeoutError as error:
        raise Problem(
            f"not all of {nodes} nodes came to {os.environ.get('TORCHYARD_RENDEZVOUS', '')}"
            f" within {setting('TORCHYARD_JOIN_WITHIN', JOIN_WITHIN)} s {error}".rstrip(),
            "see whether each node runs; TORCHYARD_JOIN_WITHIN says how many seconds the first one waits",
            SURROUNDINGS,
        )
    except RendezvousError as error:
        time.sleep(LOST)  # the node that failed has the first word
        raise Problem(f"lost the first node: {error}", "see what that one says", BAD)
    return 0


def main():
    """Run, and say what went wrong in two lines."""
    words = sys.argv[1:]
    if not words:
        print("usage: launch.py SCRIPT [ARGUMENTS]", file=sys.stderr)
        return INPUT
    try:
        return run(words)
    except Problem as problem:
        print(f"error: {problem.what}\n hint: {problem.hint}", file=sys.stderr, flush=True)
        return problem.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
