/**
 * The attacker, in a process of its own so that its work does not delay the probes. Arguments: HTTP
 * and HTTPS port, file of the CA, name of the flood, connections. Each that ends is opened again.
 */
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { connect as tlsConnect } from 'node:tls'
import { FLOOD_KINDS, FLOODED } from './flood-kinds.ts'

const AGAIN_MS = 100

const [httpPort, httpsPort, caFile = '', name = '', count] = process.argv.slice(2)
const kind = FLOOD_KINDS[name]
if (!kind) throw new Error(`no flood ${name}`)
const { isHttp2, opening, piece } = kind
const ca = readFileSync(caFile)

function open(): void {
  const host = '127.0.0.1'
  const tls = { host, port: Number(httpsPort), servername: FLOODED, ca, ALPNProtocols: ['h2'] }
  const socket = isHttp2 ? tlsConnect(tls) : connect(Number(httpPort), host)
  const send = () => {
    while (!socket.destroyed && socket.write(piece)) {}
  }
  socket.setNoDelay(true)
  socket.on('error', () => {}).resume()
  socket.once(isHttp2 ? 'secureConnect' : 'connect', () => {
    socket.write(opening)
    socket.on('drain', send)
    send()
  })
  socket.once('close', () => setTimeout(open, AGAIN_MS))
}

for (let n = 0; n < Number(count); n += 1) open()
process.once('disconnect', () => process.exit())
