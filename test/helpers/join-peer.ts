import { once } from 'node:events'
import { createServer, type TLSSocket } from 'node:tls'
import { onTestFinished } from 'vitest'
import { JOIN_PROTOCOL } from '../../src/join/join-messages.ts'
import { makeJoinString, pinOf } from '../../src/join/join-string.ts'
import { createAuthority } from './tls-fixture.ts'

/** Message of a device that joins. */
export interface SentClaim {
  readonly id: string
  readonly claim: string
  readonly hostname: string
  readonly earlier?: string
}

export interface JoinPeer {
  /** A new join string for it. */
  readonly invite: () => string
  readonly address: string
  readonly caPem: string
  readonly claims: readonly SentClaim[]
}

/** Message of the gateway, or `closed`: the connection ends without an answer. */
type Answer = (claim: SentClaim) => object | 'closed'

export const welcome = (name: string) => ({
  v: 1,
  name,
  authtoken: `id_authtoken-of-${name}`,
  agent_domain: `agent.${name}.site.test`,
  agent_url: `https://agent.${name}.site.test`,
  tags: [],
  server_addrs: [],
})

/** The joining side of a gateway on a real socket, for answers that a real gateway gives only by accident. */
export async function joinPeer({
  answer = () => welcome('cam-7'),
  now = Date.now(),
}: {
  readonly answer?: Answer
  readonly now?: number
} = {}): Promise<JoinPeer> {
  const authority = await createAuthority()
  const { certPem, keyPem } = await authority.issue()
  const claims: SentClaim[] = []
  const sockets = new Set<TLSSocket>()
  const options = { cert: certPem, key: keyPem, ALPNProtocols: [JOIN_PROTOCOL] }
  const server = createServer(options, (socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    // An agent, which has to look elsewhere.
    if (socket.alpnProtocol !== JOIN_PROTOCOL) {
      socket.destroy()
      return
    }
    socket.once('data', (chunk) => {
      const claim = JSON.parse(String(chunk)) as SentClaim
      claims.push(claim)
      const answered = answer(claim)
      if (answered === 'closed') socket.destroy()
      else socket.end(`${JSON.stringify(answered)}\n`)
    })
    socket.write(`${JSON.stringify({ v: 1, ca: authority.caPem, now })}\n`)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const at = server.address()
  const port = typeof at === 'object' && at ? at.port : 0
  const { caPem } = authority
  const addresses = [{ host: '127.0.0.1', port }]
  const invite = () => makeJoinString({ pin: pinOf(caPem), addresses }).text.reveal()
  return { invite, address: `127.0.0.1:${port}`, caPem, claims }
}
