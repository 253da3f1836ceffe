#!/bin/sh
# Does with the unit of the agent what systemd does, for the commands of device-agent join and leave.
# The bare root has no systemd. The data is not that of the other trials.
set -eu
run=/run/device-agent
stop() {
	[ -e /run/agent.pid ] || return 0
	pid=$(cat /run/agent.pid)
	kill "$pid" 2>/dev/null || true
	while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
	rm /run/agent.pid
}
start() {
	mkdir -p $run /tmp/joined
	set -a
	. /etc/device-agent/agent.env
	CREDENTIALS_DIRECTORY=/etc/credstore RUNTIME_DIRECTORY=$run STATE_DIRECTORY=/tmp/joined AGENT_LISTEN=127.0.0.1:0
	set +a
	setsid device-agent run --json >/run/agent.ready 2>/run/agent.log </dev/null &
	echo $! >/run/agent.pid
	while ! [ -s /run/agent.ready ]; do
		kill -0 "$(cat /run/agent.pid)" 2>/dev/null || { cat /run/agent.log >&2; exit 1; }
		sleep 0.05
	done
}
case "$1" in
show) echo LoadState=loaded ;;
enable) ;;
restart) stop; start ;;
disable) [ "$2" != --now ] || stop ;;
*) echo "unknown command: $*" >&2; exit 1 ;;
esac
