#!/bin/sh
# The first process of a private engine, in a mount and a process namespace of its own: gives it its own /usr and /run,
# then starts dockerd and waits for it. It reaps what is left to it; when it ends, the kernel ends the rest.
# $1 the mark of these processes, $2 the root's /usr, $3 a directory to work in, $4 dockerd's configuration.
set -eu
cd /
usr=$2 room=$3 config=$4
rm -rf "$room"
mkdir -p "$room"

# The programs come from the unpacked root, the kernel's modules from the host.
if [ -d /usr/lib/modules ]; then
    mkdir -p "$usr/lib/modules"
    mount --rbind /usr/lib/modules "$usr/lib/modules"
fi
mount --rbind "$usr" /usr
hash -r

# /run is the host's, entry by entry, but for the directories of an engine: a host's engine has the same, and were ours
# mounted on a directory of the host, then removing that would unmount it here.
mount -t tmpfs -o mode=0755 torchyard "$room"
for entry in /run/* /run/.[!.]*; do
    name=${entry#/run/}
    case "$name" in
        docker | containerd | runc) continue ;;
    esac
    if [ -L "$entry" ]; then
        cp -P "$entry" "$room/$name"
    elif [ -d "$entry" ]; then
        mkdir "$room/$name"
        mount --rbind "$entry" "$room/$name"
    elif [ -e "$entry" ]; then
        : >"$room/$name"
        mount --bind "$entry" "$room/$name"
    fi
done
mkdir -m 0711 "$room/docker" "$room/containerd" "$room/runc"
mount --rbind "$room" /run
umount --lazy "$room"

# Without overlay mounts the engine would start and every build fail.
mkdir "$room/lower" "$room/upper" "$room/work" "$room/merged"
if ! mount -t overlay -o "lowerdir=$room/lower,upperdir=$room/upper,workdir=$room/work" torchyard "$room/merged"; then
    echo "torchyard: no overlay mount works in $room"
    exit 97
fi
umount "$room/merged"
rm -rf "$room"

ulimit -n 1048576 2>/dev/null || ulimit -n "$(ulimit -H -n)" || true
engine=
trap '[ -z "$engine" ] || kill -TERM "$engine" 2>/dev/null || true' TERM INT
dockerd --config-file "$config" &
engine=$!
code=0
while kill -0 "$engine" 2>/dev/null; do
    code=0
    wait "$engine" || code=$?
done
exit "$code"
