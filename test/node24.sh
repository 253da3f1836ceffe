#!/usr/bin/env bash
# Installs, builds and tries this working tree on Node 24, whatever Node the machine has. Nothing
# that compiles is in the PATH of the installation. The tests are those of what depends on the
# version of Node: the native library, the program's start, what V8 keeps, tunnels that come back
# after a kill -9.
set -euo pipefail
cd "$(dirname "$0")/.."
VERSION=24.21.0
TESTS=(store/ gateway/ingress/broken-bodies gateway/ingress/odd- gateway/ingress/weak-services gateway/ingress/visitor/http2-floods gateway/ingress/visitor/ended-sessions gateway/ingress/visitor/terminate-tls cli/node-support agent/upstreams/old-tls cli/service/idle-collector e2e/bundle e2e/commands e2e/kept-tick e2e/tunnels)

work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
mkdir "$work/node" "$work/bin" "$work/project"

# The registry has Node's binaries as packages; here no .npmrc of the project is read.
package="node-linux-$(node --print process.arch)"
(cd "$work/node" && npm install --no-save --no-audit --no-fund --loglevel=error "$package@$VERSION")

# All that an installation may use: no compiler, no make, no Python.
ln -s "$work/node/node_modules/$package/bin/node" "$work/bin/node"
ln -s "$(readlink --canonicalize "$(command -v npm)")" "$work/bin/npm"
for tool in sh cat cp mkdir rm; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done

git ls-files -z --cached --others --exclude-standard |
  tar --create --null --files-from=- | tar --extract --directory="$work/project"
cd "$work/project"
PATH="$work/bin" npm run --silent ready
echo "Installed and built on Node $(PATH="$work/bin" node --version) without a compiler."
PATH="$work/bin:$PATH" node_modules/.bin/vitest run --config test/vitest.config.ts "${TESTS[@]}"
