/** Why a command cannot run here, and the script that runs it, if there is one. */
export const NOT_HERE: readonly (readonly [pattern: RegExp, reason: string])[] = [
  [/^npm start/, 'the script has started it'],
  [/^npm (run package|pack)|^npx tsx packaging|--sign /, 'builds: npm run test:package'],
  [
    /packages\.example\.com|install\.sh|^gpg |apt-get|\bdpkg\b|install -m/,
    'package: npm run test:package',
  ],
  [/docker|skopeo|packaging\/compose/, 'containers: npm run test:image'],
  [/gateway setup/, 'systemd, DNS and ACME: npm run test:setup'],
  [/device-agent update/, 'installed package: npm run test:update'],
  [
    /systemctl|sysctl|service (install|status)|\btee\b|\/var\/lib\/|npm install|^echo 'SVC/,
    'systemd',
  ],
  [/\bnano\b|reboot|timedatectl|uname/, 'a machine of its own'],
  [/^(createuser|psql)|join-token|gateway (drain|forget)|cluster\.backup/, 'cluster: npm test'],
  [/^(ssh|scp) /, 'another machine'],
  [/api\.ngrok\.com|main\.js run|^export /, 'the hosted service'],
  [/\$TOKEN|\$ETAG/, 'a public certificate: npm run test:fleet'],
  [/fpath|bashrc|config\/fish/, 'changes the files of the user: npm test'],
  [/device-agent join( +#.*)?$/, 'asks at a terminal: npm test'],
  [/restore \S+ --replace/, 'a stopped service: npm test'],
  [/device-agent leave/, 'removes the device: npm test'],
  [/_SMTP_|GATEWAY_TCP_LISTEN=/, 'settings of the gateway: npm test'],
  [/^node -e .*listen/, 'runs until Ctrl-C; the script has its own'],
]

/** Commands that run until Ctrl-C. They pass if they print something within some seconds. */
export const ENDLESS = /logs -f|--watch|curl -sSN/

/** Exit codes other than 0 that the page says. */
export const EXIT_CODES: readonly (readonly [pattern: RegExp, codes: readonly number[]])[] = [
  [/(device-agent|main\.js) (status|doctor)/, [0, 1]],
  [/fleet plan/, [3]],
]

export interface PageRule {
  /** The wildcard of the site; default: `*.site.localhost`. */
  readonly domain?: string
  readonly settings?: Readonly<Record<string, string>>
  /** Files of the page: the blocks of a language, in their order. */
  readonly files?: Readonly<Record<string, readonly [language: string, index: number]>>
  /** Commands before the first command of the page. */
  readonly before?: string
  /** Commands before each command that matches. */
  readonly between?: readonly (readonly [pattern: RegExp, command: string])[]
  /** Placeholders, and commands that print their values. */
  readonly values?: Readonly<Record<string, string>>
}

const EXAMPLE = '*.site.example.com'
const API = `curl -sSf -H "authorization: Bearer $(cat data/gateway/api-key)" -H 'svc-version: 2' -H 'content-type: application/json' http://127.0.0.1:8070`
const POLICY = `printf 'on_http_request:\\n  - actions: [{ type: deny }]\\n' > policy.yaml`
/** An agent with the settings that `provision` has written. */
const FLEET_DEVICE = `mkdir cam07 && cp devices/cam07.env cam07/.env
  (cd cam07 && AGENT_LISTEN=127.0.0.1:0 SVC_CA_CERT=$PWD/../ca.pem exec setsid device-agent run) > cam07.log 2>&1 < /dev/null &
  for i in $(seq 60); do device-agent status --data-dir cam07/data 2>&1 | grep -q 'link up' && exit 0; sleep 1; done; cat cam07.log; exit 1`
const RECEIVER = `setsid node -e "require('http').createServer((q, s) => q.resume().on('end', () => s.end())).listen(9000, '127.0.0.1', () => console.log())" < /dev/null > receiver.log 2>&1 &
  for i in $(seq 100); do [ -s receiver.log ] && exit 0; sleep 0.1; done; exit 1`
const HELLO = 'device-agent tunnels add hello.site.localhost 7041'
const CERTIFICATE =
  'openssl req -x509 -newkey rsa:2048 -nodes -keyout privkey.pem -out fullchain.pem -days 30 -subj /CN=own.site.localhost -addext subjectAltName=DNS:own.site.localhost'
const CLIENT_CA =
  'openssl req -x509 -newkey rsa:2048 -nodes -keyout client-ca.key -out client-ca.pem -days 30 -subj /CN=staff'

/** What a page needs besides an agent, a gateway and the services. */
export const PAGES: Readonly<Record<string, PageRule>> = {
  'docs/getting-started/gateway-on-a-server.md': { domain: EXAMPLE },
  'docs/getting-started/raspberry-pi.md': { domain: EXAMPLE },
  'docs/getting-started/install.md': {
    domain: EXAMPLE,
    values: {
      'dajoin1_…@gateway.example.com:4443':
        'device-agent gateway invite --name cam-7 --json 2> /dev/null | jq -r .join_string',
      // In the folder of another device.
      'sudo device-agent join -': "echo '(mkdir cam-7 && cd cam-7 && device-agent join -)'",
    },
  },
  'docs/guides/backup-and-restore.md': { domain: EXAMPLE },
  'docs/guides/cameras-and-web-apps.md': {
    domain: EXAMPLE,
    files: { 'camera.yaml': ['yaml', 1], 'redirect.yaml': ['yaml', 2] },
  },
  'docs/guides/device.md': {
    domain: EXAMPLE,
    before: POLICY,
    // The commands before have removed it.
    between: [
      [/^echo .*set-policy web -$/, 'device-agent tunnels add web.cam01.site.example.com 8001'],
    ],
  },
  'docs/guides/fleets.md': {
    domain: EXAMPLE,
    files: { 'fleet.yaml': ['yaml', 0], 'closed.yaml': ['yaml', 1] },
    before: `device-agent gateway show ca > ca.pem`,
    between: [[/fleet plan/, FLEET_DEVICE]],
  },
  'docs/guides/grpc.md': { domain: EXAMPLE },
  'docs/guides/notifications.md': {
    settings: {
      GATEWAY_SMTP_URL: 'smtp://127.0.0.1:25?tls=off',
      GATEWAY_SMTP_FROM: 'gateway@example.com',
      GATEWAY_OUTBOUND_ALLOW: '127.0.0.1:9000',
    },
    between: [[/test$/, RECEIVER]],
    values: {
      $id: `${API}/notification_channels | jq -r '.notification_channels[] | select(.name == "test").id'`,
    },
  },
  'docs/guides/pools.md': {
    values: { 'bot_…': `${API}/bot_users | jq -r '.bot_users[] | select(.name == "shop").id'` },
  },
  'docs/guides/rate-limits.md': { files: { 'login.yaml': ['yaml', 0] }, before: HELLO },
  'docs/guides/ssh-and-tcp.md': { domain: EXAMPLE },
  'docs/reference/management-api.md': {
    before: `${CERTIFICATE} && ${CLIENT_CA} && echo secret > tom.txt`,
    values: {
      'rd_…': `${API}/reserved_domains -d '{"domain":"own.site.localhost"}' | jq -r .id`,
      'cert_…': `${API}/tls_certificates | jq -r '.tls_certificates[0].id'`,
      'bot_…': `${API}/bot_users -d '{"name":"cam09"}' | jq -r .id`,
    },
  },
  'docs/reference/policies.md': {
    before: POLICY,
    values: {
      'cr_…': `${API}/credentials | jq -r '.credentials[0].id'`,
      'rd_…': `${API}/reserved_domains | jq -r '.reserved_domains[0].id'`,
    },
  },
}
