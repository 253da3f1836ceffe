import fc from 'fast-check'
import { expect, it } from 'vitest'
import { ErrorCode, MuxadoError } from '../../src/muxado/error-code.ts'
import type { Stream } from '../../src/muxado/stream.ts'
import { turns } from '../helpers/frame-peer.ts'
import { type FramedSession, framedSession } from '../helpers/framed-session.ts'
import { RecordingHandler } from '../helpers/recording-handler.ts'

const uint32 = fc.oneof(fc.integer({ min: 0, max: 9 }), fc.integer({ min: 0, max: 0xffff_ffff }))
const size = fc.oneof(fc.nat(20), fc.nat(300_000))
/** Which of the streams that are or were there; the last ones are often not there yet. */
const which = fc.nat(7)

/** What a peer may say, of its streams and of ours: right by its form, if not by its time. */
const frame = fc.oneof(
  fc.record({ say: fc.constant('open' as const), size, flags: fc.constantFrom(2, 3) }),
  fc.record({ say: fc.constant('data' as const), which, size, flags: fc.nat(1) }),
  fc.record({ say: fc.constant('credit' as const), which, bytes: uint32 }),
  fc.record({ say: fc.constant('reset' as const), which, code: uint32 }),
)
/** What no peer should say, or only once. */
const nonsense = fc.oneof(
  fc.record({ say: fc.constant('goAway' as const), code: uint32 }),
  fc.record({
    say: fc.constant('raw' as const),
    hex: fc.stringMatching(/^([0-9a-f]{2}){1,40}$/),
  }),
)
const act = fc.record({
  act: fc.constantFrom('open', 'write', 'end', 'release', 'retire', 'reset'),
  which,
  size,
})
const step = fc.oneof(
  { weight: 40, arbitrary: frame },
  { weight: 30, arbitrary: act },
  { weight: 1, arbitrary: nonsense },
)
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never

interface Held {
  readonly stream: Stream
  readonly handler: RecordingHandler
}

/** One peer, one owner, and the streams between them. */
class Play {
  readonly held: Held[] = []
  readonly #framed: FramedSession
  #nextPeerId: number

  constructor(framed: FramedSession, role: 'server' | 'client') {
    this.#framed = framed
    this.#nextPeerId = role === 'server' ? 1 : 2
  }

  take(step: Step): void {
    if ('say' in step) this.#say(step)
    else this.#act(step)
  }

  #say(step: Extract<Step, { say: unknown }>): void {
    const { peer } = this.#framed
    if (step.say === 'goAway') peer.goAway(0, step.code, 'fuzz')
    else if (step.say === 'raw') peer.raw(step.hex)
    else if (step.say === 'open') {
      peer.data(this.#nextPeerId, Buffer.alloc(step.size), step.flags)
      this.#nextPeerId += 2
    } else this.#sayOn(step, this.held[step.which]?.stream.id)
  }

  #sayOn(step: Extract<Step, { say: 'data' | 'credit' | 'reset' }>, id: number | undefined): void {
    const { peer } = this.#framed
    if (id === undefined) return
    if (step.say === 'data') peer.data(id, Buffer.alloc(step.size), step.flags)
    else if (step.say === 'credit') peer.windowIncrement(id, step.bytes)
    else peer.reset(id, step.code)
  }

  #act({ act, which, size }: Extract<Step, { act: unknown }>): void {
    const stream = this.held[which]?.stream
    if (act === 'open') this.#open(size)
    else if (act === 'write') stream?.write(Buffer.alloc(size))
    else if (act === 'end') stream?.end()
    else if (act === 'release') stream?.release(size)
    else if (act === 'retire') stream?.retire()
    else stream?.reset(ErrorCode.streamCancelled)
  }

  #open(size: number): void {
    const handler = new RecordingHandler()
    try {
      const stream = this.#framed.session.open(handler, Buffer.alloc(size))
      this.held.push({ stream, handler })
    } catch (error) {
      expect(error).toBeInstanceOf(MuxadoError)
    }
  }
}

it.each(['server', 'client'] as const)(
  'a %s survives whatever its peer says, and leaks no stream',
  async (role) => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 80, size: 'max' }), async (script) => {
        const framed = await framedSession({
          role,
          limits: { openStreams: 4, streams: 5, sendQueueBytes: 100_000 },
          accept: (stream) => {
            const handler = new RecordingHandler()
            stream.handler = handler
            play.held.push({ stream, handler })
          },
        })
        const play = new Play(framed, role)
        for (const [index, next] of script.entries()) {
          play.take(next)
          if (index % 5 === 4) await turns(3)
        }
        await turns()
        const living = play.held.filter(({ handler }) => !handler.isClosed).length
        expect(framed.session.freeSlots).toBe(framed.reason() ? 0 : Math.max(0, 4 - living))
        framed.transport.destroy()
        await framed.session.closed
        for (const { handler } of play.held) {
          expect(handler.events.filter((event) => event.startsWith('close'))).toHaveLength(1)
          expect(handler.isClosed).toBe(true)
        }
      }),
      { numRuns: 150 },
    )
  },
)
