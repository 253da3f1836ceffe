#!/usr/bin/env bash
# npm run test:package [-- amd64|arm64 ...]: makes the packages twice and compares them, weighs them, asks
# lintian, and tries each in a bare Debian. Parts whose tools are missing are named and left out; it ends
# with 1 when a part fails. REQUIRE_ALL=1: also when one was left out.
set -euo pipefail
cd "$(dirname "$0")/.."
MAX_MB=35
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(amd64 arm64)

work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
failed=0 left_out=0
fail() { echo "FAILED: $*" >&2; failed=1; }
leave_out() { echo "left out: $*" >&2; left_out=1; }
npm_arch() { case $1 in amd64) echo x64 ;; *) echo "$1" ;; esac; }

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}
arches=()
for target in "${targets[@]}"; do arches+=(--arch "$(npm_arch "$target")"); done
# The second time with another time zone and umask, and at another time.
node_modules/.bin/tsx packaging/main.ts "${arches[@]}" --output "$work/first"
(umask 077 && TZ=Asia/Tokyo LC_ALL=C node_modules/.bin/tsx packaging/main.ts "${arches[@]}" --output "$work/second" >/dev/null)
for path in "$work"/first/*; do
  name=$(basename "$path")
  if cmp "$path" "$work/second/$name"; then echo "same bytes twice: $name"; else fail "$name is another one the second time"; fi
done
rm -rf "$work/second"

for deb in "$work"/first/*.deb; do
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
  packaging/bare-root/run.sh "$target" "$work"/first/*_"$target".deb "$work"/first/*-linux-"$arch".tar.gz || code=$?
  case $code in
    0) echo "bare root: $target works" ;;
    77) leave_out "the bare root for $target" ;;
    *) fail "the bare root for $target" ;;
  esac
done

[ "$left_out" = 0 ] || [ -z "${REQUIRE_ALL:-}" ] || failed=1
exit "$failed"
