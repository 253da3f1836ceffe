import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import {
  afterRequest,
  answerAfter,
  listen,
  serve,
  serveTlsOnly,
} from '../../chaos/faulty-services.ts'
import {
  type Fault,
  type FaultyDevice,
  faultTable,
  freedPort,
  serveHello,
} from '../../helpers/fault-table.ts'
import { createAuthority } from '../../helpers/tls-fixture.ts'

const to = (start: () => Promise<number>, upstream?: object): Pick<Fault, 'tunnel'> => ({
  tunnel: async () => ({
    forwardsTo: `localhost:${await start()}`,
    ...(upstream && { upstream }),
  }),
})

async function toTls(name: string) {
  const { issue } = await createAuthority()
  const { certPem: cert, keyPem: key } = await issue({ name })
  const server = createTlsServer({ cert, key }, (_, response) => response.end())
  return { forwardsTo: `https://localhost:${await listen(server)}` }
}

const elsewhere = async (device: FaultyDevice) => device.tunnel(`localhost:${await serveHello()}`)

const portOf = ({ agent }: FaultyDevice) =>
  Number(agent.find('a').spec.forwardsTo.split(':').at(-1))

faultTable('a fault of the service', {
  'nothing listens': {
    ...to(freedPort),
    headline: /localhost:\d+ refuses connections\.$/,
    check: /^upstream /,
    detail: /^connection refused, nothing is listening$/,
    remedy:
      /^Start the service, or run device-agent tunnels set a\.site\.test PORT with the port that/,
    statusRemedy: /^Start the service/,
    mend: (device) => serveHello(portOf(device)),
  },
  'the tunnel leads to another port': {
    ...to(freedPort),
    headline: /localhost:\d+ refuses connections\.$/,
    check: /^upstream /,
    detail: /^connection refused/,
    remedy: /device-agent tunnels set a\.site\.test PORT with the port that it uses\.$/,
    statusRemedy: /./,
    mend: elsewhere,
  },
  'the service speaks TLS': {
    ...to(serveTlsOnly),
    headline: /Wrong protocol: localhost:\d+ speaks TLS\.$/,
    check: /^upstream /,
    detail: /^wrong protocol: the service speaks TLS, and the tunnel forwards plain HTTP$/,
    remedy: /^Run device-agent tunnels set a\.site\.test https:\/\/localhost:\d+\.$/,
    statusRemedy: /^Forward to https:\/\/localhost:\d+\.$/,
  },
  'the certificate is not trusted': {
    tunnel: () => toTls('localhost'),
    headline: /https:\/\/localhost:\d+ has an untrusted certificate\.$/,
    check: /^upstream /,
    detail: /^its certificate is not trusted: unable to/,
    remedy:
      /^Set NODE_EXTRA_CA_CERTS to the PEM file of its CA: .*agent\.env.*, not in \.env\. Then/,
    statusRemedy: /^Set NODE_EXTRA_CA_CERTS to the PEM file of its CA: /,
    mend: elsewhere,
  },
  'the certificate is for another name, of an unknown CA': {
    tunnel: () => toTls('cam.local'),
    headline: /^The tunnel does not work\. \S+ has a certificate for another name\.$/,
    check: /^upstream /,
    detail: /^its certificate is for another name: cam\.local, 127\.0\.0\.1 \(unable to/,
    remedy:
      /^Install a certificate for the name in the address, or run device-agent tunnels set a\./,
    statusRemedy: /^Forward to the name of the certificate, /,
    mend: elsewhere,
  },
  'the service needs five seconds': {
    ...to(() => answerAfter(5_000)),
    headline: /^The tunnel works\.$/,
    check: /^upstream /,
    detail: /^answers 200 after \d+ ms$/,
  },
  'the service hangs': {
    ...to(() => serve(() => {}), { timeout: 1 }),
    headline: /localhost:\d+ does not answer in time\.$/,
    check: /^upstream /,
    detail: /^accepts the connection, but does not answer within 1 s$/,
    remedy:
      /Restart the service if it hangs.*longer than 1 s, run device-agent tunnels set a\.site\.test --upstream-timeout SECONDS\.$/,
    statusRemedy: /./,
    mend: elsewhere,
  },
  'the service is no web service': {
    ...to(afterRequest('SSH-2.0-OpenSSH\r\n')),
    headline: /localhost:\d+ sends no valid HTTP\.$/,
    check: /^upstream /,
    detail: /^the upstream does not answer with HTTP$/,
    remedy:
      /^Run device-agent tunnels set a\.site\.test PORT with the port of the web service.* For gRPC, run device-agent tunnels set a\.site\.test --http2\.$/,
    statusRemedy: / For gRPC, set upstream\.http2 of the tunnel to true\.$/,
    mend: elsewhere,
  },
  'the service closes each connection': {
    ...to(() => serve((socket) => void socket.once('data', () => socket.end()))),
    headline: /localhost:\d+ sends no valid HTTP\.$/,
    check: /^upstream /,
    detail: /^closes the connection without an answer$/,
    remedy: /^Check the log of the service/,
    statusRemedy: /./,
    mend: elsewhere,
  },
  'the service wants a login': {
    ...to(() => listen(createServer((_, response) => response.writeHead(401).end()))),
    headline: /^The tunnel works\.$/,
    check: /^upstream /,
    detail: /^answers 401 after \d+ ms$/,
  },
  'the health check gets an error': {
    ...to(() => listen(createServer((_, response) => response.writeHead(503).end())), {
      health: '/alive',
    }),
    headline: /localhost:\d+ fails its health check \(\/alive\)\.$/,
    check: /^upstream /,
    detail: /^answers 503 after \d+ ms$/,
    mend: elsewhere,
  },
})
