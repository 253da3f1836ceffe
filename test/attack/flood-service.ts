/**
 * The service behind the flooded tunnel, in a process of its own: reading what the flood sends must
 * not delay the probes. It reports its port to the process that started it.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { constants, setPriority } from 'node:os'

// It works for the flood: see there.
setPriority(constants.priority.PRIORITY_LOW)
const server = createServer((request, response) => {
  request.resume()
  request.on('end', () => response.end('hello'))
})
server.listen(0, '127.0.0.1')
await once(server, 'listening')
process.send?.((server.address() as AddressInfo).port)
process.once('disconnect', () => process.exit())
