#!/bin/sh
# Runs as root of the bare system: installs from a repository, upgrades, downgrades, and meets forged repositories.
set -eu

sources=/etc/apt/sources.list.d/device-agent.sources
keys=/usr/share/keyrings/device-agent-archive-keyring.gpg
script=/repositories/first/install.sh
fail() { echo "$*" >&2; exit 1; }
serve() { ln -sfn "/repositories/$1" /repository; }
expect_version() { [ "$(device-agent --version)" = "$1" ] || fail "$(device-agent --version) runs instead of $1"; }
# Of this repository alone: the system has no other.
update() { apt-get -qq update -o Dir::Etc::sourcelist=$sources -o Dir::Etc::sourceparts=- -o APT::Update::Error-Mode=any; }
seconds() { date +%s; }

[ "$(find /usr/share/keyrings /etc/apt -name '*device-agent*')" = '' ] || fail 'this root is not bare'
# The mirror of Debian is out of reach here.
rm -rf /etc/apt/sources.list /var/lib/apt/lists/*_*
serve first
sh $script --dry-run
if [ -e $sources ] || command -v device-agent >/dev/null; then fail 'a dry run installed something'; fi

serve foreign
if sh $script 2>/tmp/refused; then fail 'a repository with a foreign key was taken'; fi
cat /tmp/refused
grep -q 'Nothing was changed' /tmp/refused
if [ -e $sources ] || [ -e $keys ]; then fail 'a refused repository left its files'; fi
echo 'a foreign key is refused, and nothing is left of it'

serve first
start=$(seconds)
# As from curl, by a user that lets no other user read its files.
(umask 077 && mkdir /tmp/private && TMPDIR=/tmp/private sh <$script >/tmp/installed)
first=$(device-agent --version)
grep 'sudo device-agent join' /tmp/installed
[ -s /usr/share/doc/device-agent/docs/getting-started/install.md ]
echo '# mine' >>/etc/device-agent/agent.env
echo "installed $first by the script in $(($(seconds) - start)) s"

serve next
start=$(seconds)
update
# Answers as apt does without a person: a changed settings file must not stop it.
apt-get -q -y upgrade </dev/null >/tmp/upgraded
next=$first+1
expect_version "$next"
if grep -q 'device-agent join' /tmp/upgraded; then fail 'an upgrade tells to join'; fi
echo "upgraded by apt to $next in $(($(seconds) - start)) s"
/usr/lib/device-agent/bin/node /try.mjs device-agent /tmp/apt-data
echo 'a tunnel answers'
start=$(seconds)
sh $script --version "$first" >/tmp/downgraded
expect_version "$first"
echo "downgraded to $first in $(($(seconds) - start)) s"
sh $script >/tmp/repeated
expect_version "$next"
sh $script >/tmp/repeated
expect_version "$next"
[ "$(tail -n 1 /etc/device-agent/agent.env)" = '# mine' ] || fail 'changed settings were lost'
cmp $keys /repositories/next/device-agent-archive-keyring.gpg
echo 'the script runs again, and settings stay'

# Forged copies of what this device trusts.
cp -a /repositories/rolled /repositories/forged
serve forged
suite=/repository/dists/stable
for name in InRelease Release.gpg; do mv $suite/$name /tmp; done
if update 2>/tmp/refused; then fail 'a repository without a signature was taken'; fi
cp $suite/Release $suite/InRelease
if update 2>/tmp/refused; then fail 'an unsigned InRelease was taken'; fi
echo 'a removed signature is refused'
sed 's/^Label: .*/Label: changed/' /tmp/InRelease >$suite/InRelease
if update 2>/tmp/refused; then fail 'a changed release was taken'; fi
cp /tmp/InRelease $suite/InRelease
find $suite/main -type f -exec sh -c 'echo "Package: evil" >"$1"' sh {} \;
if update 2>/tmp/refused; then fail 'a changed list was taken'; fi
echo 'changed lists are refused'
expect_version "$next"
serve foreign
if update 2>/tmp/refused; then fail 'a foreign key was taken later'; fi
echo 'a foreign key is refused on an installed device'
serve next
update
arch=$(dpkg --print-architecture)
printf X | dd of="/repositories/next/pool/device-agent_${next}_$arch.deb" bs=1 seek=2000000 conv=notrunc status=none
apt-get clean
if apt-get -q -y --reinstall install device-agent </dev/null >/tmp/refused 2>&1; then fail 'a changed package was taken'; fi
grep -i 'hash sum mismatch\|unexpected size' /tmp/refused || fail "another reason: $(cat /tmp/refused)"
expect_version "$next"
echo 'a changed package is refused, and the version before it runs'

serve rolled
update
apt-get -q -y install device-agent-archive-keyring </dev/null >/dev/null
cmp $keys /repositories/rolled/device-agent-archive-keyring.gpg
update
echo 'the next key signs: the device knew it, and has the key after it now'
cp /repositories/first-key.gpg $keys
if update 2>/tmp/refused; then fail 'a key was taken that this device does not know'; fi
sh /repository/install.sh >/tmp/repeated
cmp $keys /repositories/rolled/device-agent-archive-keyring.gpg
update
echo 'a device that missed the next key is refused, until the script of today has run'

apt-mark hold device-agent >/dev/null
if sh $script --version "$first" >/tmp/held 2>&1; then fail 'a held package was changed'; fi
cmp $keys /repositories/rolled/device-agent-archive-keyring.gpg
apt-mark unhold device-agent >/dev/null
echo 'an old copy of the script brings no old key back'

if printf 'no join string' | sh /repository/install.sh --join >/tmp/join-said 2>&1; then fail 'nonsense was taken for a join string'; fi
grep -i 'join' /tmp/join-said | tail -n 2
apt-get -q -y purge device-agent device-agent-archive-keyring </dev/null >/dev/null
if [ -e /usr/bin/device-agent ] || [ -e $keys ]; then fail 'purged, but something is left'; fi
rm -r /repositories /repository $sources
apt-get clean
echo 'purged'
