#!/usr/bin/env bash
# npm run test:package [-- amd64|arm64 ...]: makes the packages and an apt repository twice and compares them, weighs
# them, asks lintian, and tries each in a bare Debian, by dpkg and from the repository. Parts whose tools are missing are named and left out; it ends
# with 1 when a part fails. REQUIRE_ALL=1: also when one was left out.
set -euo pipefail
cd "$(dirname "$0")/.."
MAX_MB=35
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(amd64 arm64)

work=$(mktemp --directory)
export GNUPGHOME=$work/gpg
trap 'gpgconf --kill all; rm -rf "$work"' EXIT
failed=0 left_out=0
fail() { echo "FAILED: $*" >&2; failed=1; }
leave_out() { echo "left out: $*" >&2; left_out=1; }
npm_arch() { case $1 in amd64) echo x64 ;; *) echo "$1" ;; esac; }

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}
arches=()
for target in "${targets[@]}"; do arches+=(--arch "$(npm_arch "$target")"); done
# The second time with another time zone and umask, and at another time.
mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --passphrase '' --quick-generate-key 'trial <trial@example.com>' ed25519 sign never
key=$(gpg --with-colons --list-keys | awk -F: '/^fpr/ { print $10; exit }')
build() {
  node_modules/.bin/tsx packaging/main.ts "${arches[@]}" --output "$1" \
    --repository "$1/apt" --archive-key "$key" --url https://packages.example.com
}
build "$work/first"
(umask 077 && TZ=Asia/Tokyo LC_ALL=C build "$work/second" >/dev/null)
while read -r name; do
  case $name in
  # The time of the release is in them; each signature has another time.
  */Release | */Release.gpg | */InRelease) continue ;;
  esac
  if cmp "$work/first/$name" "$work/second/$name"; then echo "same bytes twice: $name"; else fail "$name is another one the second time"; fi
done < <(cd "$work/first" && find . -type f | sort)
rm -rf "$work/second"

for deb in "$work"/first/*.deb "$work"/first/apt/pool/*_all.deb; do
  name=$(basename "$deb")
  size=$(stat --format=%s "$deb")
  [ "$size" -le $((MAX_MB * 1000000)) ] || fail "$name has $size bytes, more than $MAX_MB MB"
  if command -v lintian >/dev/null; then
    if lintian --fail-on error,warning "$deb"; then echo "lintian: $name is clean"; else fail "lintian on $name"; fi
  else
    leave_out "lintian on $name: install lintian"
  fi
done

for target in "${targets[@]}"; do
  arch=$(npm_arch "$target")
  code=0
  node_modules/.bin/tsx packaging/bare-root/repositories.ts "$work/$target" "$work"/first/*_"$target".deb
  packaging/bare-root/run.sh "$target" "$work"/first/*_"$target".deb "$work"/first/*-linux-"$arch".tar.gz "$work/$target" || code=$?
  rm -rf "${work:?}/$target"
  case $code in
    0) echo "bare root: $target works" ;;
    77) leave_out "the bare root for $target" ;;
    *) fail "the bare root for $target" ;;
  esac
done

[ "$left_out" = 0 ] || [ -z "${REQUIRE_ALL:-}" ] || failed=1
exit "$failed"
