#!/bin/busybox sh
# The guest's first process: finds its root, runs what it is to run, tells how that ended.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod "$module" || echo "$module does not load"; done
mount -t virtiofs host /host
mount -t virtiofs packages /packages
mount -t tmpfs tmpfs /tmp
mkdir /tmp/upper /tmp/work
mount -t overlay -o lowerdir=/packages:/host,upperdir=/tmp/upper,workdir=/tmp/work root /new || poweroff -f
ifconfig lo 127.0.0.1 up
hostname guest
for port in /sys/class/virtio-ports/*; do
  case $(cat "$port/name") in
    out) out=/dev/${port##*/} ;;
    code) code=/dev/${port##*/} ;;
  esac
done
for folder in proc sys dev; do mount --move /$folder /new/$folder; done
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
mount -t tmpfs tmpfs /new/dev/shm
mount -t tmpfs tmpfs /new/tmp
while read -r folder; do mkdir -p "/new$folder" && mount --bind "/host$folder" "/new$folder"; done </seen
mount -t tmpfs tmpfs /new/run
mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
ln -s /proc/self/fd /new/dev/fd
cp /run /new/run/words
cp /bin/busybox /new/run/busybox
# Users of daemons that were unpacked but not installed.
cat >>/new/etc/passwd <<END
_rpc:x:998:65534::/run/rpcbind:/usr/sbin/nologin
statd:x:997:65534::/var/lib/nfs:/usr/sbin/nologin
END
cat >/new/run/first <<END
/bin/bash /run/words </dev/null >$out 2>&1
echo \$? >$code
# Nothing is kept, and what is written to a server that is gone would be waited for.
/run/busybox poweroff -n -f
END
# The kernel looks for its helpers, such as modprobe, in the first process' root.
exec switch_root /new /bin/bash /run/first
