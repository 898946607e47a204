"""What the control group of this process allows, in both versions of control groups. Needs only Python."""

import os


def cpus(root="/"):
    """CPUs that the quota allows, as a number with fractions, or None where there is no quota."""
    for text in _files(root, "", "cpu.max"):
        quota, _, period = text.strip().partition(" ")
        if quota != "max":
            return int(quota) / int(period or 100000)
    quotas = _files(root, "cpu", "cpu.cfs_quota_us")
    periods = _files(root, "cpu", "cpu.cfs_period_us")
    for quota, period in zip(quotas, periods):
        if int(quota) > 0:
            return int(quota) / int(period)
    return None


def memory(root="/"):
    """Bytes of memory that the group allows, or None where there is no limit."""
    for text in [*_files(root, "", "memory.max"), *_files(root, "memory", "memory.limit_in_bytes")]:
        if text.strip() != "max" and int(text) < 1 << 60:  # version 1 says "no limit" as a number near 2**63
            return int(text)
    return None


def oom_kills(root="/"):
    """How many processes of the group the kernel killed for want of memory, as far as it tells."""
    for text in [*_files(root, "", "memory.events"), *_files(root, "memory", "memory.oom_control")]:
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def version(root="/"):
    """2, 1, or 0 where no control groups are mounted."""
    if os.path.exists(os.path.join(root, "sys/fs/cgroup/cgroup.controllers")):
        return 2
    return 1 if os.path.isdir(os.path.join(root, "sys/fs/cgroup/cpu")) else 0


def _files(root, controller, name):
    """The texts of a group's file, from the own group outwards: a limit of any of them holds."""
    top = os.path.join(root, "sys/fs/cgroup", controller)
    own = _own(root, controller).strip("/")
    texts = []
    while True:
        try:
            with open(os.path.join(top, own, name)) as file:
                texts.append(file.read())
        except OSError:
            pass
        if not own:
            return texts
        own = os.path.dirname(own)


def _own(root, controller):
    """The group of this process below the controller's mount; in a group namespace, and in most containers, the top."""
    try:
        with open(os.path.join(root, "proc/self/cgroup")) as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return ""
