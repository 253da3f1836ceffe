/** What happens to the installed package, in this order. Each command ends with 0 if the step works. */
export interface Step {
  readonly what: string
  /** Of sh, with -eu, as root in /root. */
  readonly command: string
  /** The power is cut before it. */
  readonly power?: true
}

const NODE = '/usr/lib/device-agent/bin/node'
const VISIT = `[ "$(curl -sS -m 20 --retry 20 --retry-delay 1 --retry-all-errors -f -H 'host: web.cam1.site.localhost' http://127.0.0.1:8080/)" = served ]`
/** The agent may be between two starts. */
const CONNECTED = `for i in $(seq 30); do device-agent status 2>&1 | grep -q 'link up' && break; sleep 1; done
      device-agent status | grep 'link up'`
const ENDED_WELL = `[ "$(systemctl show --property=Result --value device-gateway)" = success ]`

export const STEPS: readonly Step[] = [
  {
    what: 'dpkg installs the package, and the agent runs',
    command: 'dpkg -i package.deb; systemctl is-active device-agent; device-agent version',
  },
  {
    what: 'the gateway runs',
    command:
      'device-agent service install --gateway; systemctl is-active device-gateway; systemctl is-enabled device-gateway',
  },
  {
    what: 'a device joins',
    command: `string=$(device-agent gateway invite --name cam1 | grep -o 'dajoin1_[^ ]*' | head -n 1); echo "$string" | device-agent join -; ${CONNECTED}`,
  },
  {
    what: 'a tunnel answers',
    command: `systemd-run --quiet --unit=web ${NODE} -e "require('http').createServer((q, s) => s.end('served')).listen(8001, '127.0.0.1')"
      device-agent tunnels add web.cam1.site.localhost 8001; ${VISIT}`,
  },
  {
    what: 'a broken update is rolled back',
    command: `if device-agent update bad.tar.gz >said 2>&1; then exit 1; fi; cat said
      grep 'the new version stopped before the end of its trial' said; ${CONNECTED}; ${VISIT}`,
  },
  {
    what: 'a good update takes its place',
    command: `device-agent update good.tar.gz; device-agent version | grep ' 2\\.0\\.'; ${CONNECTED}; ${VISIT}`,
  },
  { what: 'a reload of the gateway', command: `systemctl reload device-gateway; ${VISIT}` },
  {
    what: 'a stop after a reload ends the gateway without a kill',
    command: `systemctl stop device-gateway.socket device-gateway; ${ENDED_WELL}
      [ "$(systemctl is-active device-gateway)" = inactive ]; systemctl start device-gateway; ${VISIT}`,
  },
  {
    what: 'all is back after a power cut',
    power: true,
    command: `systemctl start --no-block device-agent device-gateway
      systemd-run --quiet --unit=web ${NODE} -e "require('http').createServer((q, s) => s.end('served')).listen(8001, '127.0.0.1')"
      ${VISIT}; ${CONNECTED}`,
  },
  {
    what: 'a removal keeps settings and data, and an installation starts both again',
    command: `dpkg -r device-agent; [ -s /etc/device-agent/agent.env ]; [ -e /var/lib/private/device-agent/agent.db ]
      dpkg -i package.deb; systemctl is-active device-agent device-gateway; ${VISIT}`,
  },
  {
    what: 'a purge leaves nothing',
    command: `dpkg -P device-agent
      left=$(ls -d /etc/device-* /var/lib/device-* /var/lib/private/device-* /opt/device-agent /usr/lib/device-agent /etc/credstore/* 2>/dev/null || true)
      echo "$left"; [ -z "$left" ]`,
  },
]
