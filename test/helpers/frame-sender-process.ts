/**
 * `frame-sender-process.ts PORT CONNECTIONS TEXT`: opens connections one after the other, and sends the
 * text on each. It ends when the other side has closed the last one.
 */
import { once } from 'node:events'
import { connect } from 'node:tls'

const [port, connections, text = ''] = process.argv.slice(2)

for (let n = 0; n < Number(connections); n += 1) {
  const socket = connect({
    host: '127.0.0.1',
    port: Number(port),
    servername: 'a.test',
    ALPNProtocols: ['h2'],
    rejectUnauthorized: false,
  })
  socket.on('error', () => {}).resume()
  // A reset is an end, too.
  const closed = new Promise((resolve) => socket.once('close', resolve))
  await once(socket, 'secureConnect')
  socket.write(text)
  await closed
}
