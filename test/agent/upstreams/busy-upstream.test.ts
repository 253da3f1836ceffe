import { connect, type Socket } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { linkUp, specOf } from '../../helpers/agent-in-folder.ts'
import { startedOnGateway } from '../../helpers/agent-on-gateway.ts'
import { eventually } from '../../helpers/eventually.ts'
import { startWeakService } from '../../helpers/weak-service.ts'

const PLACES = 2
const SWITCH = 'Connection: upgrade\r\nUpgrade: x\r\n'

it('is asked for max_connections at once, and the status says by how many streams they are taken', async () => {
  const on = await startedOnGateway()
  // It would take more: the limit is the tunnel's.
  const service = await startWeakService(10, 'closes', (_request, response) =>
    response.end('hello'),
  )
  // Checks of the agent are connections as well.
  const upstream = { max_connections: PLACES, health: 'off' } as const
  await on.agent.create({ ...specOf('a', service.url.replace('http://', '')), upstream })
  const { port } = on.addresses.http
  const send = (more = ''): Socket => {
    const socket = connect(port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    socket.on('error', () => {})
    socket.write(`GET / HTTP/1.1\r\nHost: a.site.test\r\n${more}\r\n`)
    return socket
  }
  const textOf = (socket: Socket) => {
    let text = ''
    socket.setEncoding('latin1').on('data', (more: string) => {
      text += more
    })
    return () => text
  }
  const held = Array.from({ length: PLACES }, () => send(SWITCH))
  const switched = held.map(textOf)
  await eventually(() => {
    for (const text of switched) expect(text()).toMatch(/^HTTP\/1.1 101 /)
  })
  const waiting = textOf(send())
  await eventually(() => {
    const [{ status } = expect.fail('no tunnel')] = on.agent.list()
    expect(status).toMatchObject({
      state: 'online',
      upstream: 'busy',
      reason: 'upstream',
      lastError: expect.stringContaining(
        `all ${PLACES} connections are in use, ${PLACES} by open-ended streams, requests waiting: 1`,
      ),
      remedy: expect.stringContaining('upstream.max_connections'),
      visitors: { state: 'busy', busy: { connections: PLACES, streams: PLACES, waiting: 1 } },
    })
  })
  expect([service.most(), waiting()]).toEqual([PLACES, ''])
  // The first stream that ends makes room; the other goes on.
  held[0]?.destroy()
  await eventually(() => expect(waiting()).toMatch(/^HTTP\/1.1 200 /))
  expect(held[1]?.closed).toBe(false)
  await eventually(() => expect(on.agent.list()[0]?.status.upstream).toBe('up'))
  await linkUp(on.agent)
})
