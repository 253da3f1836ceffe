import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

/** Requests that one connection has under way at most. */
const PIPELINE = 32
/** Of one address. */
const CONNECTIONS = 8

export interface Visit {
  /** Where the visitor comes from: any address of 127.0.0.0/8. */
  readonly from: string
  readonly key: string
}

/**
 * Visits of one endpoint over plain HTTP, each with a key in `x-key`, pipelined on few connections;
 * the statuses are told in any order.
 */
export async function visitAll(
  target: { readonly port: number; readonly host: string },
  visits: readonly Visit[],
  onStatus: (visit: Visit, status: number) => void,
): Promise<void> {
  const byAddress = new Map<string, Visit[]>()
  for (const visit of visits) {
    const ofAddress = byAddress.get(visit.from)
    if (ofAddress) ofAddress.push(visit)
    else byAddress.set(visit.from, [visit])
  }
  const lanes = [...byAddress].flatMap(([from, all]) => {
    const count = Math.min(CONNECTIONS, Math.ceil(all.length / PIPELINE))
    return Array.from({ length: count }, (_, lane) => ({
      from,
      visits: all.filter((_visit, index) => index % count === lane),
    }))
  })
  await Promise.all(
    lanes.map(async (lane) => {
      const socket = connect({ port: target.port, host: '127.0.0.1', localAddress: lane.from })
      await once(socket, 'connect')
      await visitOn(socket, target.host, lane.visits, onStatus)
      socket.destroy()
    }),
  )
}

async function visitOn(
  socket: Socket,
  host: string,
  visits: readonly Visit[],
  onStatus: (visit: Visit, status: number) => void,
): Promise<void> {
  const chunks: AsyncIterator<Buffer> = socket[Symbol.asyncIterator]()
  let received = ''
  for (let at = 0; at < visits.length; at += PIPELINE) {
    const batch = visits.slice(at, at + PIPELINE)
    socket.write(
      batch.map(({ key }) => `GET / HTTP/1.1\r\nHost: ${host}\r\nx-key: ${key}\r\n\r\n`).join(''),
    )
    for (const visit of batch) {
      let response = firstResponse(received)
      while (!response) {
        const { value, done } = await chunks.next()
        if (done) throw new Error('the gateway closed a connection of a visitor')
        received += value.toString('latin1')
        response = firstResponse(received)
      }
      received = received.slice(response.length)
      onStatus(visit, response.status)
    }
  }
}

/** Status and length of a response with a `content-length`; undefined until it is whole. */
function firstResponse(text: string): { status: number; length: number } | undefined {
  const end = text.indexOf('\r\n\r\n')
  if (end === -1) return undefined
  const head = text.slice(0, end)
  const body = /\r\ncontent-length: (\d+)/i.exec(head)?.[1]
  if (body === undefined) throw new Error(`a response without a length: ${head}`)
  const length = end + 4 + Number(body)
  return text.length < length ? undefined : { status: Number(head.slice(9, 12)), length }
}
