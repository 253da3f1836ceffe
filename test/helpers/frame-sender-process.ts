/**
 * `frame-sender-process.ts JSON`: opens connections one after the other, see `FrameSending`. It ends
 * when the last one has closed.
 */
import { once } from 'node:events'
import { connect } from 'node:tls'
import type { FrameSending } from './frame-sender.ts'

const [json = ''] = process.argv.slice(2)
const { port, opening, piece, connections } = JSON.parse(json) as FrameSending
const [begin, more] = [Buffer.from(opening, 'latin1'), Buffer.from(piece, 'latin1')]

for (let n = 0; n < connections; n += 1) {
  const socket = connect({
    host: '127.0.0.1',
    port,
    servername: 'a.test',
    ALPNProtocols: ['h2'],
    rejectUnauthorized: false,
  })
  socket.on('error', () => {}).resume()
  const closed = once(socket, 'close')
  await once(socket, 'secureConnect')
  socket.write(begin)
  const sendAll = () => {
    while (!socket.destroyed && socket.write(more)) {}
  }
  if (more.length > 0) {
    socket.on('drain', sendAll)
    sendAll()
  }
  await closed
}
