/**
 * The yardstick: the shortest reverse proxy that Node's own `http` allows, with keep-alive on both
 * sides and no tunnel at all. Prints its port.
 */
import { Agent, createServer, request } from 'node:http'

const target = Number(process.argv[2])
const agent = new Agent({ keepAlive: true, maxSockets: 256 })

const server = createServer((incoming, outgoing) => {
  const { method, url, headers } = incoming
  const options = { host: '127.0.0.1', port: target, method, path: url, headers, agent }
  const forward = request(options, (answer) => {
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
    answer.pipe(outgoing)
  })
  forward.on('error', () => outgoing.destroy())
  incoming.pipe(forward)
})
server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  console.log(typeof address === 'object' ? address?.port : address)
})
