#!/usr/bin/env bash
# Usage: run.sh amd64|arm64 PACKAGE.deb ARCHIVE.tar.gz REPOSITORIES
# A bare Debian 12 (debootstrap, minbase), in a network that has only loopback: no compiler, no names,
# no /etc/hosts. inside-apt.sh and inside.sh run there. Needs root; arm64 also qemu-user-static and binfmt_misc.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
arch=$1 deb=$2 archive=$3 repositories=$4
[ "$(id -u)" = 0 ] || { echo "bare-root: only root may make a root" >&2; exit 77; }
for tool in debootstrap unshare chroot ip; do
  command -v "$tool" >/dev/null || { echo "bare-root: $tool is missing" >&2; exit 77; }
done

root=$(mktemp --directory /var/tmp/device-agent-root-XXXXXX)
handlers=/proc/sys/fs/binfmt_misc
has_mounted='' has_registered=''
leave() {
  [ -z "$has_registered" ] || echo -1 >"$handlers/qemu-aarch64"
  [ -z "$has_mounted" ] || umount "$handlers"
  rm -rf --one-file-system "$root"
}
trap leave EXIT
# The kernel starts programs of arm64 by the emulator, for as long as this runs.
if [ "$arch" = arm64 ] && [ "$(dpkg --print-architecture)" != arm64 ]; then
  rule=/usr/lib/binfmt.d/qemu-aarch64.conf
  [ -e "$rule" ] || { echo "bare-root: qemu-user-static is missing" >&2; exit 77; }
  if [ ! -e "$handlers/register" ]; then
    mount -t binfmt_misc binfmt_misc "$handlers" || { echo "bare-root: no binfmt_misc here" >&2; exit 77; }
    has_mounted=1
  fi
  if [ ! -e "$handlers/qemu-aarch64" ]; then
    grep -v '^#' "$rule" >"$handlers/register"
    has_registered=1
  fi
fi
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 2>/dev/null | head -n 1)
if ! debootstrap --variant=minbase --arch="$arch" bookworm "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1; then
  tail -n 20 "$root.log" "$root/debootstrap/debootstrap.log" >&2 || true
  rm -f "$root.log"
  exit 1
fi
rm -f "$root.log"
cp "$deb" "$root/package.deb"
cp "$archive" "$root/package.tar.gz"
cp -r "$repositories" "$root/repositories"
cp "$here/inside-apt.sh" "$here/inside.sh" "$here/try.mjs" "$here/join.mjs" "$here/systemctl.sh" "$root/"
# From join to the connection; an emulated processor may take longer.
max_seconds=Infinity
[ "$arch" != "$(dpkg --print-architecture)" ] || max_seconds=10

# Its mounts and processes end with it.
unshare --net --mount --pid --fork --kill-child sh -euc '
  ip link set lo up
  mount -t proc proc "$1/proc"
  mount -t tmpfs tmpfs "$1/tmp"
  mount --rbind /dev "$1/dev"
  exec chroot "$1" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root MAX_SECONDS="$2" DEBIAN_FRONTEND=noninteractive sh -euc "sh /inside-apt.sh; exec sh /inside.sh"
' sh "$root" "$max_seconds"
