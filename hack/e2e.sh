#!/usr/bin/env bash
# Installs the chart on a real node and goes the whole way with it:
# PROFILE=small BREAK=<image> EVIDENCE=<folder> KEEP=1 hack/e2e.sh
# Exit status: 0 every step held; 1 one did not; 3 this machine cannot run it, and
# nothing was tested.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

if [ "${1:-}" != inside ]; then
	cannot() {
		echo "e2e: not run: $1" >&2
		exit 3
	}
	[ "$(uname -s)" = Linux ] || cannot "it needs Linux"
	[ "$(id -u)" -eq 0 ] || cannot "it needs root, for namespaces, mounts and containers"
	hack/packages.sh containerd runc containernetworking-plugins iptables iproute2 util-linux dbus postgresql ca-certificates || cannot "packages are missing"
	work=$(mktemp -d)
	# Without the evidence of a failure nothing stays, neither below /sys.
	clean() {
		find /sys/fs/cgroup -depth -type d -path '*nvsentinel-e2e*' -exec rmdir {} \; 2>/dev/null || true
		if [ -n "${EVIDENCE:-}" ]; then
			mkdir -p "$EVIDENCE" && cp -r "$work"/*.txt "$work"/pods "$work"/node/*.log "$work"/cluster/*.log "$EVIDENCE" 2>/dev/null || true
		fi
		rm -rf "$work"
	}
	trap clean EXIT
	chmod 755 "$work"
	mkdir "$work"/{upper,scratch,sysctl}
	own() { unshare --mount --net --pid --fork --kill-child --mount-proc "$@"; }
	own mount -t overlay overlay -o "lowerdir=/var,upperdir=$work/upper,workdir=$work/scratch" /var || cannot "the kernel makes no namespaces, or no overlays below $work (TMPDIR names another folder)"
	CGO_ENABLED=0 go run ./tests/cmd/prepare e2e bin/e2e
	registry=registry.example.com # as docs/get-started/install.md calls it
	make -s images OUT=bin/e2e/images REGISTRY=$registry/nvidia/nvsentinel ONLY=node-services,platform-connectors,syslog-health-monitor,nvsentinel-controller,nvsentinel >bin/e2e/images.txt
	bin/tools/images --list tests/e2e/images.txt --out bin/e2e/images --tag v1 --registry $registry >>bin/e2e/images.txt
	bin/tools/images --list tests/e2e/plugin.txt --out bin/e2e/images --tag v1 --registry $registry >>bin/e2e/images.txt
	bin/tools/images --list tests/e2e/node-plugin.txt --out bin/e2e/images --tag "$(sed -n 's/^appVersion: *//p' distros/helm/nvsentinel/Chart.yaml)" --registry $registry/nvidia/nvsentinel >>bin/e2e/images.txt
	own "$root/hack/e2e.sh" inside "$work"
	exit
fi

# Within: what a node writes lies in $work and in overlays, and what kubelet sets of the
# kernel in files that look like it.
work=$2
mount --make-rshared /
mount -t overlay overlay -o "lowerdir=/var,upperdir=$work/upper,workdir=$work/scratch" /var
mount -t tmpfs tmpfs /run
mkdir -p /var/log/e2e /run/lock
mkdir -p /var/log/pods
cat /proc/sys/kernel/random/boot_id >/var/log/e2e/boot_id
mount --bind /var/log/e2e/boot_id /proc/sys/kernel/random/boot_id
for knob in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	file=$work/sysctl/${knob//\//.}
	cat "/proc/sys/$knob" >"$file"
	mount --bind "$file" "/proc/sys/$knob"
done
echo "127.0.0.1 localhost
10.99.0.1 real-0 registry.example.com" >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
for controller in /sys/fs/cgroup /sys/fs/cgroup/*/; do
	[ -e "$controller/cgroup.procs" ] && mkdir -p "$controller/nvsentinel-e2e"
done
set +e
"$root/bin/e2e/e2e" --root "$root" --work "$work" --bin "$root/bin/e2e" --images "$root/bin/e2e/images" ${PROFILE:+--profile "$PROFILE"} ${BREAK:+--break "$BREAK"} ${KEEP:+--keep}
exit $? # no exec: what becomes an orphan here is this shell's
