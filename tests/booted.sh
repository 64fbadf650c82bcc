#!/bin/bash
# Boots this machine's own system with systemd as process 1, in name spaces: what it writes is kept in memory, and lost
# with the last process. booted.sh setup WORK GROUP FOLDER=PATH…: a folder for mounts, the control group of all
# processes, and folders that are found at these paths: what others change meanwhile must not lie below an overlay.
set -euo pipefail
umask 022 # whatever that of the tests is: without it, nobody but root may read the file system
step=$1 work=$2
root=$work/root

if [ "$step" = setup ]; then # once: the file system, which outlasts a boot
    group=$3
    shift 3
    echo $$ >"$group/cgroup.procs"
    mount -t tmpfs tmpfs "$work"
    mkdir "$work/upper" "$work/work" "$root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$root"
    rm -rf "$root"/etc/systemd/system/*.wants # services of this machine are not started
    mkdir -p "$root/var/log/journal"
    for folder; do
        mkdir -p "$root/${folder#*=}"
        mount --bind "${folder%%=*}" "$root/${folder#*=}"
    done
    while :; do
        # A reboot ends the process 1 of a name space by SIGHUP, a shutdown by SIGINT (reboot(2)).
        set +e
        unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup "$0" boot "$work"
        ended=$?
        set -e
        [ $ended = $((128 + 1)) ] || exit $ended
    done
fi

mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys" # the kernel's settings are not this machine's
mount -t sysfs sysfs "$root/sys" -o ro
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/dev" -o mode=755
mkdir "$root/dev/pts" "$root/dev/shm"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666,mode=620
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs tmpfs "$root/run" -o mode=755
ip link set lo up
cd "$root"
mkdir -p .host
pivot_root . .host
umount -l /.host
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin container=plantlog-test \
    /lib/systemd/systemd --unit=multi-user.target --show-status=no
