import { createServer as createHttpServer } from 'node:http'
import { createServer as createTlsServer } from 'node:tls'
import { expect, it } from 'vitest'
import { NgrokConnector } from '../../../src/agent/ngrok-connector.ts'
import { agentChecks } from '../../../src/cli/doctor/agent-checks.ts'
import { fullBacklog, listen, serve } from '../../chaos/faulty-services.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { FaultyDevice, faultTable, freedPort } from '../../helpers/fault-table.ts'
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
      /^Add \S+ to GATEWAY_PUBLIC_NAMES of the gateway, or set SVC_SERVER_ADDR to one of these names and restart the agent\.$/,
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
  remedy: new RegExp(
    `${PORT.source} After a correction, restart the agent\\. A login page or an HTTP proxy may also answer`,
  ),
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
      /^Check that the gateway runs, and its .* that of GATEWAY_AGENT_LISTEN, by default 4443\. After a correction, restart the agent\.$/,
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
    remedy:
      /^Check the signal or the network of the device\. Restarts of the gateway count too\. If other/,
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

const NO_FAULT = { headline: /./, check: 'link', detail: /./ }

it('tells the remedy of the link for the own domain, which waits for the link', async () => {
  const own = { domain: 'agent.site.test', socketPath: '/tmp/no-api.sock' }
  const device = await FaultyDevice.open({ ...NO_FAULT, agent: { own } })
  await device.start({ SVC_SERVER_ADDR: `localhost:${await freedPort()}` })
  await eventually(async () => {
    const { findings } = await device.examined()
    const found = (name: string) => findings.find(({ check }) => check === name)
    const remedy = expect.stringMatching(/^Check that the gateway runs/)
    expect(found('link')?.remedy).toEqual(remedy)
    expect(found('own domain agent.site.test')).toMatchObject({
      detail: expect.stringMatching(/^waiting: localhost:\d+ refuses connections$/),
      remedy: found('link')?.remedy,
    })
  })
})

it('claims no own domain to be reachable that the device did not reach', async () => {
  const own = { domain: 'agent.site.test', socketPath: '/tmp/no-api.sock' }
  const device = await FaultyDevice.open({ ...NO_FAULT, agent: { own } })
  await device.start()
  await eventually(() => expect(device.status.own_endpoint?.reachable).toBe('unverified'))
  const { findings, status } = await device.examined()
  const check = 'own domain agent.site.test'
  const remedy = expect.stringMatching(
    /^Open the address from another network\. .*SVC_INGRESS_ADDR/,
  )
  // Once, and not again among the notes of the status.
  expect(findings.filter((it) => it.remedy !== null)).toEqual([
    {
      check,
      outcome: 'good',
      detail: expect.stringMatching(/^reachable: not known, this device cannot check it: /),
      remedy,
    },
  ])
  if (!status.own_endpoint) throw new Error('there is no own domain')
  const nothing = { last_error: null, reason: null, remedy: null, reachable: 'unknown' } as const
  const unknown = { ...status, advice: [], own_endpoint: { ...status.own_endpoint, ...nothing } }
  const early = await agentChecks({ status: unknown, tunnels: [] })
  expect(early.find((it) => it.check === check)).toEqual({
    check,
    outcome: 'good',
    detail: 'reachable: not known, the first check is not complete',
    remedy: 'Repeat this check in 30 s.',
  })
})
