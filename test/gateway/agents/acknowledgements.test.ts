import { expect, it } from 'vitest'
import { DEAF } from '../../../src/muxado/stream.ts'
import { eventually } from '../../helpers/eventually.ts'
import { RawAgent } from '../../helpers/raw-agent.ts'
import { RawClient } from '../../helpers/raw-http.ts'
import { startGateway } from '../../helpers/running-gateway.ts'

const HEAD = 'HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n'

/** Sends three requests on one connection. Returns the frames between the last answer and its request. */
async function framesOfLastRequest(answerParts: readonly string[]) {
  const lines: string[] = []
  let onAcknowledgement = () => {}
  const running = await startGateway()
  const agent = await RawAgent.connect(running, {
    trace: (line) => {
      lines.push(line)
      if (line.startsWith('received WNDINC')) setImmediate(() => onAcknowledgement())
    },
    onStream(_type, stream) {
      let parts: string[] = []
      const answer = () => {
        const part = parts.shift()
        if (part) stream.write(Buffer.from(part))
      }
      stream.handler = {
        ...DEAF,
        onData(chunk) {
          if (!String(chunk).includes('GET / ')) return
          parts = [...answerParts]
          answer()
        },
      }
      // As an SDK with Nagle's algorithm: the next part follows the acknowledgement of the last.
      onAcknowledgement = answer
    },
  })
  await agent.auth(running.authtoken.reveal())
  await agent.bind('cam.site.test')
  const [session] = running.gateway.parts.sessions.all()
  await eventually(() => expect(session?.latencyMs).toBeGreaterThan(0))
  const visitor = RawClient.connect(running.addresses.http.port)
  let from = 0
  for (const count of [1, 2, 3]) {
    from = lines.length
    visitor.send('GET / HTTP/1.1\r\nhost: cam.site.test\r\n\r\n')
    await eventually(() => expect(visitor.text.split('body')).toHaveLength(count + 1))
  }
  // A frame behind the last answer comes before this answer.
  await agent.rpc(2, { Id: 'ep_x' })
  const rpc = lines.findIndex(
    (line, at) => at >= from && line.startsWith('sent DATA') && line.includes('SYN'),
  )
  return lines.slice(from, rpc).map((line) => line.replace(/ \d+.*/, ''))
}

it('are not sent for a complete answer: the next request carries them', async () => {
  expect(await framesOfLastRequest([`${HEAD}body`])).toEqual(['received DATA', 'sent DATA'])
})

it('are sent for each part of an answer: an SDK holds the next part back without them', async () => {
  expect(await framesOfLastRequest([HEAD, 'bo', 'dy'])).toEqual([
    'received DATA',
    'sent DATA',
    'received WNDINC',
    'sent DATA',
    'received WNDINC',
    'sent DATA',
  ])
})
