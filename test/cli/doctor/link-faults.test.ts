import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { join } from 'node:path'
import { createServer as createTlsServer } from 'node:tls'
import { expect } from 'vitest'
import type { Agent } from '../../../src/agent/agent.ts'
import { resetDeviceId } from '../../../src/agent/device/device-id.ts'
import { NgrokConnector } from '../../../src/agent/ngrok-connector.ts'
import type { ClientVersion } from '../../../src/settings/forms.ts'
import { fullBacklog, listen, serve } from '../../chaos/faulty-services.ts'
import { FAST_TIMINGS } from '../../helpers/agent-in-folder.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { type FaultyDevice, faultTable, freedPort, serveHello } from '../../helpers/fault-table.ts'
import { bind, connectSdk, startGateway } from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'
import { AN_HOUR_AGO, createAuthority, createTlsFixture } from '../../helpers/tls-fixture.ts'

/** A name of this machine that its certificates do not have. */
const OWN_NAME = '127.1'
const DAY_MS = 86_400_000
const IN_A_DAY = {
  notBefore: new Date(Date.now() + DAY_MS),
  notAfter: new Date(Date.now() + 2 * DAY_MS),
}

const local = (port: number) => ({ host: '127.0.0.1', port })

/** The address of the gateway leads to another server from now on. */
const leadsTo = async (device: FaultyDevice, port: Promise<number>) =>
  device.on.proxy.retarget(local(await port))

/** The address of the gateway leads to the gateway again. */
const leadsBack = ({ on }: FaultyDevice) => on.proxy.retarget(on.addresses.agent)

const rightAddress = (device: FaultyDevice) => device.start({ SVC_SERVER_ADDR: device.serverAddr })
const rightCa = (device: FaultyDevice) =>
  device.start({ SVC_CA_CERT: device.on.addresses.caCertPath })

/** A TLS server that agents cannot use. */
async function tlsServer(fixture: Awaited<ReturnType<typeof createTlsFixture>>): Promise<number> {
  const { certPem: cert, keyPem: key } = fixture
  return listen(createTlsServer({ cert, key }, (socket) => void socket.on('error', () => {})))
}

/** A server in the place of the gateway, with a certificate of this time by a CA that the device trusts. */
async function dated(device: FaultyDevice, validity: typeof AN_HOUR_AGO): Promise<void> {
  const fixture = await createTlsFixture(validity)
  device.settings.SVC_CA_CERT = device.file('dated-ca.pem', fixture.caPem)
  await leadsTo(device, tlsServer(fixture))
}

/** The CA is valid, its certificate for the gateway is not yet. */
async function early(device: FaultyDevice): Promise<void> {
  const authority = await createAuthority()
  const { caPem } = authority
  device.settings.SVC_CA_CERT = device.file('dated-ca.pem', caPem)
  await leadsTo(device, tlsServer({ caPem, ...(await authority.issue({ validity: IN_A_DAY })) }))
}

/** The gateway has a new certificate. */
async function renewed(device: FaultyDevice): Promise<void> {
  leadsBack(device)
  await rightCa(device)
}

const UNKNOWN_CA = {
  headline: /^The tunnel does not work\. localhost:\d+ has a certificate of an unknown CA\.$/,
  check: /^tls /,
  remedy:
    /^On the gateway, run device-agent gateway show ca\. Save its output to \/\S+\.pem \(SVC_CA_CERT\), and restart the agent\. A proxy or a login page/,
}

faultTable('a certificate of the gateway', {
  'the CA certificate is not set': {
    settings: { SVC_CA_CERT: undefined },
    headline: /^The tunnel does not work\. The gateway has a certificate of an unknown CA\.$/,
    check: 'link',
    detail: /certificate of an unknown CA/,
    remedy:
      /^On the gateway, run device-agent gateway show ca\. Save its output on this device, set SVC_CA_CERT to the file, and restart the agent\. A proxy/,
    mend: rightCa,
  },
  'the CA certificate is that of another gateway': {
    settings: async (device) => {
      const { caPem } = await createTlsFixture()
      device.settings.SVC_CA_CERT = device.file('other-ca.pem', caPem)
    },
    ...UNKNOWN_CA,
    detail: /unknown CA .*; certificate chain: device-agent gateway ← device-agent gateway CA/,
    mend: rightCa,
  },
  'a login page or a proxy intercepts TLS': {
    settings: (device) => leadsTo(device, createTlsFixture().then(tlsServer)),
    ...UNKNOWN_CA,
    detail: /unknown CA .*; certificate chain: localhost ← test CA/,
    mend: leadsBack,
  },
  'the certificate is for other names': {
    settings: (device) => {
      device.settings.SVC_SERVER_ADDR = device.serverAddr.replace('localhost', OWN_NAME)
    },
    headline: /^The tunnel does not work\. \S+:\d+ presented a certificate for other names\.$/,
    check: /^tls /,
    detail: /for other names: localhost, 127\.0\.0\.1/,
    remedy:
      /^Add \S+ to GATEWAY_PUBLIC_NAMES of the gateway, or set SVC_SERVER_ADDR to one of these names\.$/,
    mend: rightAddress,
  },
  'the certificate has expired': {
    settings: (device) => dated(device, AN_HOUR_AGO),
    headline: /^The tunnel does not work\. The certificate of localhost:\d+ has expired\.$/,
    check: /^tls /,
    detail: /has expired \(on \d{4}-\d\d-\d\d\); the device clock says \d{4}-/,
    remedy:
      /^Check the clocks of the device and the gateway\. If both are right, restart the gateway/,
    mend: renewed,
  },
  'the certificate is not yet valid': {
    settings: early,
    headline: /^The tunnel does not work\. The clocks of this device and the gateway differ\.$/,
    check: /^tls /,
    detail: /is not yet valid \(before \d{4}-\d\d-\d\d\); the device clock says \d{4}-/,
    remedy: /^Set the wrong clock, of this device or of the gateway/,
    mend: renewed,
  },
  'the CA certificate is not yet valid': {
    settings: (device) => dated(device, IN_A_DAY),
    headline: /^The tunnel does not work\. The clocks of this device and the gateway differ\.$/,
    check: 'CA certificate',
    detail: /dated-ca\.pem is not valid before \d{4}-\d\d-\d\d$/,
    statusRemedy: /^Set the wrong clock, of this device or of the gateway/,
    remedy:
      /^Check the clock of this device\. If it is right, the gateway made this CA certificate/,
    mend: renewed,
  },
})

const PORT =
  /^Check the port in SVC_SERVER_ADDR: that of GATEWAY_AGENT_LISTEN of the gateway, by default 4443\./
const NO_TLS = {
  headline: /^The tunnel does not work\. localhost:\d+ does not speak TLS\.$/,
  check: /^tls /,
  detail: /does not speak TLS$/,
  remedy: new RegExp(`${PORT.source} A login page or an HTTP proxy may also answer`),
}

faultTable('the way to the gateway', {
  'DNS does not know the name': {
    settings: { SVC_SERVER_ADDR: 'gateway.invalid:4443' },
    headline: /^The tunnel does not work\. gateway\.invalid cannot be resolved/,
    check: 'dns gateway.invalid:4443',
    detail: /cannot be resolved(?: by DNS|: DNS does not answer) \(E\w+\)$/,
    // A machine without a network gets EAI_AGAIN.
    remedy: /^(Correct the host name in SVC_SERVER_ADDR|Check that the device has a network)/,
    mend: rightAddress,
  },
  'DNS leads to another machine': {
    settings: async (device) => {
      device.settings.SVC_SERVER_ADDR = `${OWN_NAME}:${await freedPort()}`
    },
    headline: /^The tunnel does not work\. \S+ refuses connections/,
    check: /^tcp /,
    detail: /refuses connections \([\d.:a-f, ]+\)$/,
    remedy: /^Check that the gateway runs, and its address and port in SVC_SERVER_ADDR\./,
    mend: rightAddress,
  },
  'nothing listens there': {
    settings: async (device) => {
      device.settings.SVC_SERVER_ADDR = `localhost:${await freedPort()}`
    },
    headline: /^The tunnel does not work\. localhost:\d+ refuses connections\.$/,
    check: /^tcp /,
    detail: /refuses connections$/,
    remedy:
      /^Check that the gateway runs, and its .* that of GATEWAY_AGENT_LISTEN, by default 4443\.$/,
    mend: rightAddress,
  },
  'a firewall drops everything': {
    settings: async (device) => {
      device.settings.SVC_SERVER_ADDR = `localhost:${await fullBacklog()}`
    },
    headline: /^The tunnel does not work\. localhost:\d+ did not answer within \d+ s\.$/,
    check: /^tcp /,
    detail: /did not answer within 5 s$/,
    remedy: /Firewalls must allow TCP to this address: the agent uses no HTTP proxy\.$/,
    mend: rightAddress,
  },
  'connections are accepted and never answered': {
    settings: ({ on }) => on.proxy.mute(),
    headline: /^The tunnel does not work\. localhost:\d+ did not answer within \d+ s/,
    check: /^tls /,
    detail: /did not answer within 5 s \(it accepts connections\)$/,
    remedy: /^Check the port in .* A firewall may hold the connection, or the gateway hangs\.$/,
    mend: ({ on }) => on.proxy.heal(),
  },
  'a login page answers with HTTP': {
    settings: (device) =>
      leadsTo(device, listen(createHttpServer((_, response) => response.writeHead(302).end()))),
    ...NO_TLS,
    mend: leadsBack,
  },
  'a proxy wants a password': {
    settings: (device) =>
      leadsTo(
        device,
        serve((socket) =>
          socket.once('data', () =>
            socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n'),
          ),
        ),
      ),
    ...NO_TLS,
    mend: leadsBack,
  },
  'the port is that of the HTTP ingress': {
    settings: (device) => {
      device.settings.SVC_SERVER_ADDR = `localhost:${device.on.addresses.http.port}`
    },
    ...NO_TLS,
    mend: rightAddress,
  },
  'the port is that of the HTTPS ingress': {
    settings: (device) => {
      device.settings.SVC_SERVER_ADDR = `localhost:${device.on.addresses.https.port}`
    },
    headline: /^The tunnel does not work\. localhost:\d+ does not answer like a gateway\.$/,
    check: 'link',
    detail: /does not answer like a gateway$/,
    remedy: PORT,
    mend: rightAddress,
  },
  'the gateway is full, or a firewall cuts the connection': {
    settings: ({ on }) => on.proxy.refuse(),
    headline: /^The tunnel does not work\. localhost:\d+ closed the connection\.$/,
    check: /^tls /,
    detail: /closed the connection$/,
    remedy: /^Check the log of the gateway: it may be stopping, or at its limit of connections\./,
    mend: ({ on }) => on.proxy.heal(),
  },
  'the gateway stops': {
    cause: ({ on }) => on.gateway.stop(),
    headline: /^The tunnel does not work\. localhost:\d+ (closed|refuses)/,
    check: /^t(cp|ls) /,
    detail: /closed the connection$|refuses connections$/,
    remedy: /^Check (the log of the gateway|that the gateway runs)/,
    mend: ({ on }) => on.restartGateway(),
  },
  'the link is lost again and again': {
    cause: async ({ on, agent }) => {
      for (let times = 0; times < 4; times += 1) {
        await eventually(() => {
          if (agent.status().link.state !== 'up') throw new Error('the link is down')
        })
        on.proxy.cut()
        await eventually(() => {
          if (agent.status().link.losses !== times + 1) throw new Error('the link is up')
        })
      }
    },
    headline: /^The tunnel works\. The link is lost again and again: 4 times in 10 minutes\.$/,
    check: 'status',
    detail: /^The link is lost again and again: 4 times/,
    remedy: /^Check the signal or the network of the device\. If other devices lose/,
    isNote: true,
  },
  'the link is slow': {
    agent: {
      connector: new NgrokConnector({
        version: '1.2.3',
        log: captureLog().log,
        heartbeat: { intervalS: 1, toleranceS: 30 },
      }),
    },
    cause: ({ on }) => on.proxy.delay(600),
    headline: /^The tunnel works\. The link is slow: a round trip takes \d+\.\d s\.$/,
    check: 'status',
    detail: /^The link is slow: a round trip takes/,
    remedy: /^Check the signal or the network of the device\.$/,
    isNote: true,
    mend: ({ on }) => on.proxy.delay(0),
  },
})

const tokenFrom = (name: string, text: string) => (device: FaultyDevice) => {
  device.settings.SVC_AUTHTOKEN_FILE = device.file(name, text)
}
/** A valid token to the file that the agent watches. */
const writeToken = ({ on, settings }: FaultyDevice) => {
  const path = settings.SVC_AUTHTOKEN_FILE ?? ''
  rmSync(path, { recursive: true, force: true })
  writeFileSync(path, on.authtoken.reveal(), { mode: 0o600 })
}
const WRITE =
  /^Write an authtoken to \/\S+, readable by the agent\. No restart is needed\. For a new authtoken: Run device-agent gateway invite on the gateway and device-agent join on this device\. All tunnels are offline/
/** The agent read its environment before the file was there, as when systemd passes no credential. */
const PASS =
  /^Restart the service: .* systemd does not pass the credential to the service, .*SVC_AUTHTOKEN_FILE/
const UNUSABLE = {
  headline: /^The tunnel does not work\. Cannot use the authtoken file/,
  check: 'authtoken',
  remedy: WRITE,
  mend: writeToken,
}
const REFUSED = {
  headline: /^The tunnel does not work\. The gateway refuses the authtoken\.$/,
  check: 'link',
  remedy:
    /^Run device-agent gateway invite on the gateway and device-agent join on this device\. Or write a valid authtoken to \/\S+\. No restart is needed\. All tunnels are offline until then\.$/,
}

/** The account of the device at the gateway. */
function accountOf({ on }: FaultyDevice) {
  const { parts } = on.gateway
  const account = parts.botUsers.findByName('site')
  if (!account) throw new Error('the device is not provisioned')
  return { ...parts, account }
}

/** The credential of the device at the gateway. */
function credentialOf(device: FaultyDevice) {
  const { credentials, account, issuer } = accountOf(device)
  const [id = ''] = credentials.idsOfOwner(account.id)
  const credential = credentials.get(id)
  if (!credential) throw new Error('the device has no credential')
  return { issuer, credential }
}

/** Another authtoken of the gateway for the same names. */
async function newToken(device: FaultyDevice): Promise<void> {
  const { issuer, account } = accountOf(device)
  const acl = ['bind:*.site.test']
  const { authtoken } = await issuer.createCredential({ ownerId: account.id, acl })
  device.file('authtoken', authtoken.reveal())
}

const enable = (device: FaultyDevice, active: boolean) => {
  const { issuer, account } = accountOf(device)
  return issuer.updateBotUser(account, { active })
}

faultTable('the authtoken', {
  'systemd does not pass the authtoken to the service': {
    settings: { SVC_AUTHTOKEN_FILE: undefined },
    cause: (device) => {
      device.settings.SVC_AUTHTOKEN_FILE = device.on.tokenPath
    },
    headline: /^The tunnel does not work\. No authtoken is set\.$/,
    check: 'authtoken',
    detail: /^\/\S+ contains an authtoken, but the running agent has none$/,
    remedy: PASS,
    statusRemedy: /./,
    mend: (device) => device.start({ SVC_AUTHTOKEN_FILE: device.on.tokenPath }),
  },
  'no authtoken is set': {
    settings: { SVC_AUTHTOKEN_FILE: undefined },
    headline: /^The tunnel does not work\. No authtoken is set\.$/,
    check: 'authtoken',
    detail: /^no authtoken is set$/,
    remedy:
      /^Run device-agent gateway invite on the gateway and device-agent join on this device\. With an authtoken at hand, run device-agent service install --token-stdin, or set SVC_AUTHTOKEN_FILE and/,
    mend: (device) => device.start({ SVC_AUTHTOKEN_FILE: device.on.tokenPath }),
  },
  'the file is missing': {
    settings: (device) => {
      device.settings.SVC_AUTHTOKEN_FILE = join(device.on.folder, 'later')
    },
    headline: /^The tunnel does not work\. The authtoken file is missing\.$/,
    check: 'authtoken',
    detail: /later: the file is missing$/,
    remedy: WRITE,
    mend: writeToken,
  },
  'the file is empty': {
    settings: tokenFrom('empty', ''),
    ...UNUSABLE,
    detail: /contains no authtoken$/,
  },
  'the file cannot be read': {
    settings: (device) => {
      const path = join(device.on.folder, 'folder')
      mkdirSync(path)
      device.settings.SVC_AUTHTOKEN_FILE = path
    },
    ...UNUSABLE,
    headline: /^The tunnel does not work\. Cannot use the authtoken file: it is a directory\.$/,
    detail: /it is a directory$/,
  },
  'the file is emptied while the agent runs': {
    cause: (device) => device.file('authtoken', ''),
    ...UNUSABLE,
    headline: /^The tunnel works\. Cannot use the authtoken file/,
    detail: /contains no authtoken$/,
    statusRemedy: /^Write an authtoken to \//,
  },
  'it is mistyped': {
    settings: tokenFrom('typo', 'my-token'),
    ...REFUSED,
    detail: /The authtoken is malformed/,
    mend: writeToken,
  },
  'it is of another gateway': {
    settings: async (device) => {
      const other = await startGateway()
      tokenFrom('other', other.authtoken.reveal())(device)
    },
    ...REFUSED,
    detail: /It was deleted, or it belongs to another service/,
    mend: writeToken,
  },
  'it is wrong in a setting': {
    settings: { SVC_AUTHTOKEN_FILE: undefined, SVC_AUTHTOKEN: 'my-token' },
    ...REFUSED,
    detail: /The authtoken is malformed/,
    remedy: /Or set SVC_AUTHTOKEN to a valid authtoken and restart the agent\. All tunnels are off/,
    mend: (device) => device.start({ SVC_AUTHTOKEN: device.on.authtoken.reveal() }),
  },
  'it is revoked': {
    cause: (device) => {
      const { issuer, credential } = credentialOf(device)
      return issuer.deleteCredential(credential)
    },
    ...REFUSED,
    detail: /It was deleted, or it belongs to another service/,
    mend: newToken,
  },
  'its account is disabled': {
    cause: (device) => enable(device, false),
    headline: /^The tunnel does not work\. The gateway has disabled the account of this device\.$/,
    check: 'link',
    detail: /is inactive/,
    remedy:
      /^The account may not connect\. Ask the owner of the gateway to enable the account\. All tun/,
    mend: (device) => enable(device, true),
  },
})

const changeAcl = (device: FaultyDevice, acl: readonly string[]) => {
  const { issuer, credential } = credentialOf(device)
  return issuer.updateCredential(credential, { acl })
}
const changeQuota = (device: FaultyDevice, online_endpoints: number | null) => {
  const { issuer, account } = accountOf(device)
  return issuer.updateBotUser(account, { quotas: { online_endpoints } })
}
const clientsBelow = (...refuseBelow: ClientVersion[]) => ({
  gateway: { clients: { region: 'test', warnBelow: [], refuseBelow } },
})
const TOO_OLD = {
  headline: /^The tunnel does not work\. The gateway does not support this agent version\.$/,
  check: 'link',
  remedy: /^Update the agent\. The gateway does not support this version\.$/,
}

/** Another session of the same account, which holds a name until it is closed. */
const holders = new WeakMap<FaultyDevice, Awaited<ReturnType<typeof bind>>>()
const hold = async (device: FaultyDevice, name: string) => {
  holders.set(device, await bind(await connectSdk(device.on), name))
}
const letGo = (device: FaultyDevice) => holders.get(device)?.close()

/** Another device with a copy of the identity. */
interface Copy {
  readonly folder: string
  readonly agent: Agent
  start(): Promise<void>
}
const copies = new WeakMap<FaultyDevice, Copy>()

async function startCopy({ on }: FaultyDevice): Promise<Copy> {
  const folder = temporaryFolder()
  cpSync(join(on.folder, 'device-id'), join(folder, 'device-id'))
  writeFileSync(join(folder, 'default-policy.json'), '{}')
  const link = { ...FAST_TIMINGS.link, duplicateRetryMs: 100 }
  const options = { folder, timings: { ...FAST_TIMINGS, link } }
  let agent = on.another(options)
  await agent.start()
  return {
    folder,
    get agent() {
      return agent
    },
    start: () => {
      agent = on.another(options)
      return agent.start()
    },
  }
}

const WITHOUT_TCP = ['bind:*.site.test']
const WITH_TCP = [...WITHOUT_TCP, 'bind:127.0.0.1:*']
const EXTEND_ACL =
  /^Use a name that the ACL rules of the authtoken allow\. Or add a rule in the console of the gateway\.$/

faultTable('a decision of the gateway', {
  'the ACL of the authtoken does not allow the name': {
    settings: (device) => changeAcl(device, ['bind:*.other.test']),
    headline: /^The tunnel does not work\. The gateway does not allow a\.site\.test\.$/,
    check: 'tunnel a.site.test',
    detail: /The ACL rules of the authtoken \S+ do not allow a\.site\.test/,
    remedy: EXTEND_ACL,
    mend: (device) => changeAcl(device, ['bind:*.site.test']),
  },
  'the ACL of the authtoken does not allow TCP addresses': {
    gateway: { tcpListen: somePorts() },
    settings: (device) => changeAcl(device, WITH_TCP),
    cause: async (device) => {
      const forwardsTo = `localhost:${await serveHello()}`
      await device.agent.create({ protocol: 'tcp', domain: '', forwardsTo, policy: null })
      await changeAcl(device, WITHOUT_TCP)
    },
    headline: /^1 of 2 tunnels work\. The gateway does not allow the tunnel to localhost:\d+\.$/,
    check: /^tunnel /,
    detail:
      /The authtoken has no ACL rule for a TCP address\. The rule bind:127\.0\.0\.1:\* allows every address\.$/,
    remedy: EXTEND_ACL,
    mend: async (device) => {
      await changeAcl(device, WITH_TCP)
      const { agent } = device
      await eventually(() => expect(device.status.verdict).toBe('All 2 tunnels work.'))
      const tcp = agent.list().find(({ spec }) => spec.protocol === 'tcp')
      await agent.remove(tcp?.id ?? '')
    },
  },
  'the domain is reserved for another account': {
    settings: async (device) => {
      const { issuer, registrar } = accountOf(device)
      const { id: ownerId } = await issuer.createBotUser({ name: 'other' })
      await registrar.reserve({ domain: 'a.site.test', ownerId })
    },
    headline: /^The tunnel does not work\. The gateway does not allow a\.site\.test\.$/,
    check: 'tunnel a.site.test',
    detail: /a\.site\.test is not reserved for/,
    remedy: /^Reserve the domain for this account, or use a reserved domain\.$/,
    mend: async (device) => {
      const { registrar, domains } = accountOf(device)
      const reserved = domains.find('a.site.test')
      if (reserved) await registrar.release(reserved)
    },
  },
  'another device of the account has the name': {
    settings: (device) => hold(device, 'a.site.test'),
    headline: /^The tunnel does not work\. a\.site\.test is in use elsewhere\.$/,
    check: 'tunnel a.site.test',
    detail: /already online/,
    remedy: /^Close the domain on the other device, or use another domain\.$/,
    mend: letGo,
  },
  'another device has the name of the agent API': {
    agent: { own: { domain: 'agent.site.test', socketPath: join('/tmp', 'no-api.sock') } },
    settings: (device) => hold(device, 'agent.site.test'),
    headline: /^The tunnel works\. The agent API is not online at agent\.site\.test\.$/,
    check: 'own domain agent.site.test',
    detail: /already online/,
    remedy: /^Close the domain on the other device, or use another domain\.$/,
  },
  'a copy of the device is online': {
    cause: async (device) => {
      copies.set(device, await startCopy(device))
    },
    headline: /^The tunnel works\. A second device has the identity of this device\.$/,
    check: 'status',
    detail: /^A second device has the identity of this device: 127\.0\.0\.1\.$/,
    remedy: /^Run device-agent identity reset --yes on the copy\.$/,
    mend: async (device) => {
      const copy = copies.get(device)
      await copy?.agent.stop()
      resetDeviceId(copy?.folder ?? '')
      await copy?.start()
    },
  },
  'the device is a copy': {
    settings: async (device) => {
      resetDeviceId(device.on.folder)
      await startCopy(device)
    },
    headline: /^The tunnel does not work\. Another device has the same identity\.$/,
    check: 'link',
    detail: /is already connected from 127\.0\.0\.1, by another process/,
    remedy: /Run device-agent identity reset --yes on the copy\.$/,
    mend: async (device) => {
      resetDeviceId(device.on.folder)
      await device.start()
    },
  },
  'the quota of the account is reached': {
    settings: (device) => changeQuota(device, 0),
    headline: /^The tunnel does not work\. A limit of the account is reached\.$/,
    check: 'tunnel a.site.test',
    detail: /has reached its quota of .*ask the gateway's owner to raise the quota/,
    remedy: /^Close other sessions or tunnels of the account, or raise the limit of the account\.$/,
    mend: (device) => changeQuota(device, null),
  },
  'the agent is too old': {
    ...clientsBelow({ name: 'device-agent', version: '2.0' }),
    ...TOO_OLD,
    detail: /device-agent 1\.2\.3 is too old for this gateway\. Update it to 2\.0 or newer/,
    mend: (device) =>
      device.start(
        {},
        { connector: new NgrokConnector({ version: '2.0.0', log: captureLog().log }) },
      ),
  },
  'the agent is newer than the gateway': {
    agent: { connector: new NgrokConnector({ version: '99.0.0', log: captureLog().log }) },
    headline: /^The tunnel works\.$/,
    check: 'link',
    detail: /^up/,
  },
  'the SDK of the agent is too old': {
    ...clientsBelow({ name: 'ngrok-javascript', version: '99' }),
    ...TOO_OLD,
    detail: /ngrok-javascript \S+ is too old for this gateway\. Update it to 99 or newer/,
  },
})
