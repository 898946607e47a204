"""Sets the time of everything newer than SOURCE_DATE_EPOCH to it, and that of every directory that holds such a thing.

A directory's own time says nothing about what changed in it. When two processes work in one directory of a lower layer,
the kernel's overlay file system may give it back the time that it had before (it copies a neighbour up and restores the
parent's time, which it had read earlier); whether it does is a matter of scheduling.
"""

import os
import sys
import time

LEFT_ALONE = {"/proc", "/sys", "/dev", "/run/yard", "/etc/hosts", "/etc/resolv.conf"}


def clamp(folder, device, limit):
    """Whether anything under a folder was newer than limit, in nanoseconds; all of it is clamped then."""
    touched = False
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        if entry.path in LEFT_ALONE:
            continue
        stat = entry.stat(follow_symlinks=False)
        newer = stat.st_mtime_ns > limit
        if entry.is_dir(follow_symlinks=False) and stat.st_dev == device:
            newer = clamp(entry.path, device, limit) or newer
        if newer:
            os.utime(entry.path, ns=(limit, limit), follow_symlinks=False)
            touched = True
    return touched


if __name__ == "__main__":
    root, epoch = sys.argv[1], int(os.environ["SOURCE_DATE_EPOCH"])
    if time.time() <= epoch:  # then what this step wrote cannot be told from what was there
        now, lock = (time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(each)) for each in (time.time(), epoch))
        sys.exit(f"this machine's clock says {now}, which is before the lock's archive was made ({lock}): set it")
    clamp(root, os.stat(root).st_dev, epoch * 10**9)
