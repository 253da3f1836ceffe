/**
 * The attacker, in a process of its own so that its work does not delay the probes. Arguments: a
 * `FloodTarget` as JSON, and the name of the flood. Each connection that ends is opened again.
 */
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { constants, setPriority } from 'node:os'
import { connect as tlsConnect } from 'node:tls'
import { FLOOD_KINDS, FLOODED, type FloodTarget } from './flood-kinds.ts'

const CONNECTIONS = 10
const AGAIN_MS = 100
/** Pieces that are made once for all connections. */
const KEPT_PIECES = 200

// An attacker has a machine of its own: here it gets what the attacked leave of this one.
setPriority(constants.priority.PRIORITY_LOW)
const [json = '', name = ''] = process.argv.slice(2)
const target = JSON.parse(json) as FloodTarget
const kind = FLOOD_KINDS[name]
if (!kind) throw new Error(`no flood ${name}`)
const { listener, opening, piece, everyMs, connections = CONNECTIONS } = kind
const [host, port, ca] = ['127.0.0.1', target.ports[listener], readFileSync(target.caFile)]
const isSecure = listener === 'https'
const kept: Buffer[] = []

function open(): void {
  const tls = { host, port, servername: FLOODED, ca, ALPNProtocols: ['h2'] }
  const socket: Socket = isSecure ? tlsConnect(tls) : connect(port, host)
  let sent = 0
  const sendNext = () => {
    const bytes = kept[sent] ?? piece(sent)
    if (sent < KEPT_PIECES) kept[sent] = bytes
    sent += 1
    return socket.write(bytes)
  }
  const sendAll = () => {
    while (!socket.destroyed && sendNext()) {}
  }
  socket.setNoDelay(true)
  socket.on('error', () => {}).resume()
  socket.once(isSecure ? 'secureConnect' : 'connect', () => {
    socket.write(opening(target))
    if (everyMs !== undefined) {
      const timer = setInterval(sendNext, everyMs)
      socket.once('close', () => clearInterval(timer))
      return
    }
    socket.on('drain', sendAll)
    sendAll()
  })
  socket.once('close', () => setTimeout(open, AGAIN_MS))
}

for (let n = 0; n < connections; n += 1) open()
process.once('disconnect', () => process.exit())
