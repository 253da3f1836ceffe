import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { decode, encode } from 'dns-packet'
import { onTestFinished } from 'vitest'

/** Answers CNAME questions from a zone, name to target; `*.` stands for one label. */
export async function startDnsServer(zone: Readonly<Record<string, string>>): Promise<string> {
  const socket = createSocket('udp4')
  socket.on('message', (message, { port, address }) => {
    const { id, questions = [] } = decode(message)
    const name = questions[0]?.name.toLowerCase() ?? ''
    const target = zone[name] ?? zone[name.replace(/^[^.]+/, '*')]
    const answer = encode({
      type: 'response',
      id: id ?? 0,
      // 3 is NXDOMAIN.
      flags: target === undefined ? 3 : 0,
      questions,
      answers: target === undefined ? [] : [{ type: 'CNAME', name, data: target, ttl: 60 }],
    })
    socket.send(answer, port, address)
  })
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  onTestFinished(() => void socket.close())
  return `127.0.0.1:${socket.address().port}`
}
