#!/bin/sh
# Runs as root of the bare system: installs the package, tries it, takes it away.
set -eu

rm -f /etc/hosts
for tool in cc gcc make python3 node npm curl; do
	if command -v "$tool" >/dev/null; then echo "this root is not bare: it has $tool" >&2; exit 1; fi
done

dpkg -i /package.deb
test "$(stat -c %a /etc/device-agent/agent.env)" = 600
device-agent version
device-agent help tunnels add >/dev/null
/usr/lib/device-agent/bin/node /try.mjs device-agent
echo 'installed, and a tunnel answers'

# The device joins by its service, which a stand-in for systemd starts.
mkdir -p /run/systemd/system
cp /systemctl.sh /usr/local/bin/systemctl
/usr/lib/device-agent/bin/node /join.mjs
rm -r /run/systemd /usr/local/bin/systemctl /run/device-agent /tmp/joined /tmp/inviting
echo 'joined, and left'

cp -r /var/lib/device-agent /var/lib/device-gateway /tmp
dpkg -r device-agent
test -s /var/lib/device-agent/agent.db && test -s /var/lib/device-gateway/gateway.db
test -e /etc/device-agent/agent.env
if [ -e /usr/bin/device-agent ]; then echo 'the program is still there' >&2; exit 1; fi
echo 'removed: data and settings stay'

dpkg -i /package.deb >/dev/null
/usr/lib/device-agent/bin/node /try.mjs device-agent /var/lib kept
echo 'installed again, on the data from before'

rm -r /tmp/device-agent /tmp/device-gateway
dpkg -P device-agent
left=$(find / -xdev \( -path /proc -o -path /sys \) -prune -o \( -name '*device-agent*' -o -name '*device-gateway*' \) -print)
if [ -n "$left" ]; then printf 'purged, but there is still:\n%s\n' "$left" >&2; exit 1; fi
echo 'purged: nothing is left'

mkdir /opt/any && tar -xzf /package.tar.gz -C /opt/any
cd /opt/any/*/
ln -s "$PWD/bin/device-agent" /usr/local/bin/tried
lib/bin/node /try.mjs tried /tmp/data
echo 'the archive runs from another folder, through a link'
