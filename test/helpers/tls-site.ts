import { once } from 'node:events'
import { type AddressInfo, connect as connectTcp, type Socket } from 'node:net'
import { type ConnectionOptions, connect, createServer, type TLSSocket } from 'node:tls'
import type { Listener, Session } from '@ngrok/ngrok'
import { onTestFinished } from 'vitest'
import { withDeadline } from '../../src/base/deadline.ts'
import type { GatewayAddresses } from '../../src/gateway/gateway.ts'
import { inTime, type RunningGateway } from './running-gateway.ts'
import { createTlsFixture } from './tls-fixture.ts'

export interface TlsWish {
  readonly domain?: string
  readonly policy?: object
  /** A local port, which gets what the gateway gets, or what it has decrypted. */
  readonly to?: number
  /** PEM. */
  readonly termination?: { readonly cert: string; readonly key: string }
  readonly mutualTlsca?: string
}

/** Opens a TLS endpoint that leads to a local port; closed with the running test. */
export async function bindTls(
  session: Session,
  { domain, policy, to = 1, termination, mutualTlsca }: TlsWish = {},
): Promise<Listener> {
  const builder = session.tlsEndpoint()
  if (domain !== undefined) builder.domain(domain)
  if (policy) builder.trafficPolicy(JSON.stringify(policy))
  if (termination) builder.termination(Buffer.from(termination.cert), Buffer.from(termination.key))
  if (mutualTlsca !== undefined) builder.mutualTlsca(Buffer.from(mutualTlsca))
  const listener: Listener = await inTime(
    builder.listenAndForward(`tcp://127.0.0.1:${to}`) as unknown as Promise<Listener>,
  )
  onTestFinished(() => withDeadline(listener.close(), 300, 'listener.close').catch(() => {}))
  return listener
}

/** A service of a device that speaks TLS itself; its certificate is for `localhost`. */
export async function startTlsService(serve: (socket: TLSSocket) => void) {
  const { caPem, certPem, keyPem } = await createTlsFixture()
  const options = { cert: certPem, key: keyPem, allowHalfOpen: true }
  const server = createServer(options, (socket) => {
    socket.on('error', () => {})
    serve(socket)
  })
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
  })
  return { port: (server.address() as AddressInfo).port, caPem, server }
}

/** A visitor of the gateway's secure listener, before any byte; what goes wrong shows in `end`. */
export function visitRaw({ addresses }: Pick<RunningGateway, 'addresses'>): Socket {
  const socket = connectTcp({ ...addresses.https, allowHalfOpen: true })
  socket.on('error', () => {})
  onTestFinished(() => {
    socket.destroy()
  })
  return socket
}

/** A visitor who names a host; whoever answers, its certificate is for another one. */
export function visitTls(
  { addresses }: { readonly addresses: Pick<GatewayAddresses, 'https'> },
  servername: string,
  options: ConnectionOptions = {},
): TLSSocket {
  const socket = connect({
    ...addresses.https,
    servername,
    allowHalfOpen: true,
    checkServerIdentity: () => undefined,
    ...options,
  } as ConnectionOptions)
  socket.on('error', () => {})
  onTestFinished(() => {
    socket.destroy()
  })
  return socket
}
