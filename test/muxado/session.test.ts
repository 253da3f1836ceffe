import type { Socket } from 'node:net'
import { buffer, text } from 'node:stream/consumers'
import { describe, expect, it, vi } from 'vitest'
import { ErrorCode } from '../../src/muxado/error-code.ts'
import { FIN, SYN } from '../../src/muxado/frame-codec.ts'
import { acceptTyped, openTyped, Session } from '../../src/muxado/session.ts'
import type { Stream } from '../../src/muxado/stream.ts'
import {
  type ConnectedPair,
  pipePair,
  reversed,
  tcpPair,
  tlsPair,
} from '../helpers/connected-pair.ts'
import { eventually } from '../helpers/eventually.ts'
import { turns } from '../helpers/frame-peer.ts'
import { framedSession } from '../helpers/framed-session.ts'
import { RecordingHandler } from '../helpers/recording-handler.ts'
import { asDuplex } from '../helpers/stream-duplex.ts'

const TRANSPORTS: [string, () => Promise<ConnectedPair>][] = [
  ['a pipe', pipePair],
  ['TCP', tcpPair],
  ['TCP, the dialing side serves', reversed(tcpPair)],
  ['TLS', tlsPair],
  ['TLS, the dialing side serves', reversed(tlsPair)],
]

/** Sends everything back, as far as the peer takes it. */
function echo(stream: Stream): void {
  const duplex = asDuplex(stream)
  duplex.on('error', () => {})
  duplex.pipe(duplex)
}

it('a session switches Nagle’s algorithm off', async () => {
  const { server } = await tcpPair()
  const setNoDelay = vi.spyOn(server as Socket, 'setNoDelay')
  new Session(server, { role: 'server', accept: () => {} })
  expect(setNoDelay).toHaveBeenCalledWith(true)
})

describe.each(TRANSPORTS)('a session over %s', (_name, connectPair) => {
  describe.each([
    ['the client opens', 'client'],
    ['the server opens', 'server'],
  ] as const)('and %s', (_direction, opener) => {
    async function connect(accept: (stream: Stream) => void) {
      const transports = await connectPair()
      const sessions = {
        client: new Session(transports.client, { role: 'client', accept }),
        server: new Session(transports.server, { role: 'server', accept }),
      }
      const local = sessions[opener]
      const remote = opener === 'client' ? sessions.server : sessions.client
      return { local, remote }
    }

    it('delivers what was written before a half-close', async () => {
      const accepted: RecordingHandler[] = []
      const { local } = await connect((stream) => {
        const handler = new RecordingHandler()
        stream.handler = handler
        accepted.push(handler)
      })
      const stream = local.open(new RecordingHandler(), Buffer.from('first '))
      stream.write(Buffer.from('last'))
      stream.end()
      const events = await eventually(() => {
        expect(accepted[0]?.events.at(-1)).toBe('end')
        return accepted[0]?.events
      })
      expect(events?.join('').replaceAll('data ', '')).toBe('first lastend')
    })

    it('carries 2 MiB both ways through windows of 256 KiB', async () => {
      const { local, remote } = await connect(echo)
      const sent = Buffer.from(Array.from({ length: 2_097_152 }, (_, index) => index * 31))
      const duplex = asDuplex(local.open(new RecordingHandler()))
      duplex.end(sent)
      expect((await buffer(duplex)).equals(sent)).toBe(true)
      await eventually(() => expect([local.freeSlots, remote.freeSlots]).toEqual([448, 448]))
    })

    it('keeps 200 streams apart', async () => {
      const { local, remote } = await connect(echo)
      const answers = Array.from({ length: 200 }, (_, index) => {
        const duplex = asDuplex(local.open(new RecordingHandler(), Buffer.from(`${index}:`)))
        duplex.end('x'.repeat(index * 20))
        return text(duplex)
      })
      expect(await Promise.all(answers)).toEqual(
        Array.from({ length: 200 }, (_, index) => `${index}:${'x'.repeat(index * 20)}`),
      )
      await eventually(() => expect([local.freeSlots, remote.freeSlots]).toEqual([448, 448]))
    })

    it('lets other streams pass one whose reader stands still', async () => {
      const accepted: Stream[] = []
      const { local } = await connect((stream) => {
        if (accepted.push(stream) === 1) stream.handler = new RecordingHandler()
        else echo(stream)
      })
      const stalled = local.open(new RecordingHandler())
      expect(stalled.write(Buffer.alloc(500_000))).toBe(false)
      const duplex = asDuplex(local.open(new RecordingHandler()))
      duplex.end('passes')
      expect(await text(duplex)).toBe('passes')
    })

    it('ends both sides with one reason when one goes away', async () => {
      const accepted = new RecordingHandler()
      const { local, remote } = await connect((stream) => {
        stream.handler = accepted
      })
      const opened = new RecordingHandler()
      local.open(opened)
      await eventually(() => expect(remote.freeSlots).toBe(447))
      await local.goAway(ErrorCode.enhanceYourCalm, 'too fast')
      expect(await local.closed).toMatchObject({ reason: 'gone-away', code: 10 })
      expect(await remote.closed).toMatchObject({
        reason: 'remote-gone-away',
        code: 10,
        message: 'too fast',
      })
      expect(opened.events).toEqual(['close gone-away'])
      expect(accepted.events).toEqual(['close remote-gone-away'])
      expect([local.freeSlots, remote.freeSlots]).toEqual([0, 0])
    })
  })

  it('has its transport closed when goAway() is through, also the second time', async () => {
    const { server } = await connectPair()
    const session = new Session(server, { role: 'server', accept: () => {} })
    await session.goAway(ErrorCode.none, 'bye')
    expect(server.closed).toBe(true)
    await session.goAway(ErrorCode.none, 'bye')
  })

  it('ends with peer-eof when the peer hangs up without a GOAWAY', async () => {
    const { client, server } = await connectPair()
    const session = new Session(server, { role: 'server', accept: () => {} })
    client.end()
    expect((await session.closed).reason).toBe('peer-eof')
  })

  it('ends with transport-failed when the transport breaks or is closed on this side', async () => {
    const broken = (await connectPair()).server
    const session = new Session(broken, { role: 'server', accept: () => {} })
    const cause = new Error('the cable was pulled')
    broken.destroy(cause)
    expect(await session.closed).toMatchObject({
      reason: 'transport-failed',
      message: 'the cable was pulled',
      cause,
    })

    const closed = (await connectPair()).server
    const other = new Session(closed, { role: 'server', accept: () => {} })
    closed.destroy()
    expect((await other.closed).reason).toBe('transport-failed')
  })

  it('ends when the transport is cut', async () => {
    const { client, server } = await connectPair()
    const session = new Session(server, { role: 'server', accept: () => {} })
    const handler = new RecordingHandler()
    session.open(handler)
    client.destroy()
    expect(['peer-eof', 'transport-failed']).toContain((await session.closed).reason)
    expect(handler.isClosed).toBe(true)
    expect(server.destroyed).toBe(true)
  })
})

it('a trace says each frame in one line', async () => {
  const lines: string[] = []
  const { session, peer, accepted } = await framedSession({
    acknowledges: true,
    trace: (line) => lines.push(line),
  })
  peer.data(1, 'ask', SYN)
  peer.data(3, '', SYN | FIN)
  peer.windowIncrement(1, 7)
  peer.reset(3, 6)
  await turns()
  accepted[0]?.stream.write(Buffer.from('answer'))
  accepted[0]?.stream.end()
  await session.goAway(ErrorCode.enhanceYourCalm, 'too\nfast')
  expect(lines).toEqual([
    'received DATA 1 SYN 3 bytes',
    'received DATA 3 SYN FIN 0 bytes',
    'received WNDINC 1 7 bytes',
    'received RST 3 code 6',
    'sent WNDINC 2147483647 1 bytes',
    'sent DATA 1 6 bytes',
    'sent DATA 1 FIN 0 bytes',
    'sent GOAWAY last stream 3 code 10 "too\\nfast"',
  ])
})

describe('openTyped', () => {
  it('puts type and first bytes into the SYN frame', async () => {
    const { session, peer } = await framedSession()
    openTyped(session, 3, new RecordingHandler(), Buffer.from('head'))
    openTyped(session, 0xffff_ffff, new RecordingHandler())
    await turns()
    expect(peer.frames).toEqual([
      { type: 'data', streamId: 2, body: '\0\0\0\x03head', flags: SYN },
      { type: 'data', streamId: 4, body: '\xff\xff\xff\xff', flags: SYN },
    ])
  })
})

describe('acceptTyped', () => {
  async function typedSession() {
    const accepted: { type: number; stream: Stream; handler: RecordingHandler }[] = []
    const accept = acceptTyped((type, stream) => {
      const handler = new RecordingHandler()
      stream.handler = handler
      accepted.push({ type, stream, handler })
    })
    return { ...(await framedSession({ acknowledges: true, accept })), typed: accepted }
  }

  it('hands on the type, and what follows it to the new handler', async () => {
    const { peer, typed } = await typedSession()
    peer.data(1, Buffer.from('ffffffff61626364', 'hex'), SYN)
    await turns()
    expect(typed).toMatchObject([{ type: 0xffff_ffff, handler: { events: ['data abcd'] } }])
  })

  it('puts a type together that comes in pieces', async () => {
    const { peer, typed } = await typedSession()
    peer.data(1, '', SYN)
    for (const byte of ['00', '00', '01', '02', '61']) peer.data(1, Buffer.from(byte, 'hex'))
    await turns()
    expect(typed).toMatchObject([{ type: 0x102, handler: { events: ['data a'] } }])
  })

  it('gives credit back for the type', async () => {
    const { peer } = await typedSession()
    peer.data(1, '\0\0\0\0rest', SYN)
    await turns()
    expect(peer.frames).toEqual([{ type: 'windowIncrement', streamId: 1, bytes: 4 }])
  })

  it('hands on a stream once, even if nobody takes it over', async () => {
    const types: number[] = []
    const { peer } = await framedSession({ accept: acceptTyped((type) => types.push(type)) })
    peer.data(1, '\0\0\0\x01\0\0\0\x02', SYN)
    peer.data(1, '\0\0\0\x03')
    await turns()
    expect(types).toEqual([1])
  })

  it('retires a stream that ends before its type', async () => {
    const { session, peer, typed } = await typedSession()
    peer.data(1, '\0\0', SYN | FIN)
    await turns()
    expect(typed).toEqual([])
    expect(peer.only('data')).toMatchObject([{ streamId: 1, flags: FIN }])
    expect(session.freeSlots).toBe(448)
  })
})
