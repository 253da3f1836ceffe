import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { createDeferred } from '../../../../src/base/deferred.ts'
import {
  QUESTION_STREAM_TYPE,
  QUESTIONS_AT_ONCE,
} from '../../../../src/gateway/cluster/peers/peer-protocol.ts'
import { openTyped } from '../../../../src/muxado/session.ts'
import { DEAF } from '../../../../src/muxado/stream.ts'
import { createCluster, openLinks, startListener } from '../../../helpers/cluster.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

describe('many questions of a node', () => {
  async function openAsking() {
    const clock = new ManualClock(systemClock.now())
    const cluster = await createCluster(clock)
    const hanging = createDeferred<object>()
    const onQuestion = async (message: unknown) =>
      message instanceof Object && 'hangs' in message ? hanging.promise : answerTo(message)
    const answerTo = (message: unknown) =>
      message instanceof Object && 'chars' in message
        ? { heard: 'x'.repeat(Number(message.chars)) }
        : { heard: message }
    const { address, captured } = await startListener(cluster, 'nd_home', { onQuestion })
    const { links } = openLinks(await cluster.identify('nd_first'))
    links.follow([{ id: 'nd_home', address }])
    await eventually(() => expect(links.find('nd_home')?.state.name).toBe('up'))
    const { session } = links.find('nd_home') ?? {}
    if (!session) throw new Error('no session')
    const ask = (text: string) => {
      const heard: string[] = []
      const onData = (chunk: Buffer) => heard.push(chunk.toString())
      const handler = { ...DEAF, onData, onClose: () => heard.push('closed') }
      return { heard, stream: openTyped(session, QUESTION_STREAM_TYPE, handler, Buffer.from(text)) }
    }
    return { ask, captured, clock, hanging }
  }

  it('are answered when they come together', async () => {
    const { ask } = await openAsking()
    const asked = Array.from({ length: 1_000 }, () => ask('{}'))
    const isAnswered = ({ heard }: { heard: string[] }) => heard[0] === '{"heard":{}}'
    await eventually(() => expect(asked.filter(isAnswered)).toHaveLength(1_000))
  })

  it('are read so many at once, and no more', async () => {
    const { ask } = await openAsking()
    const begun = Array.from({ length: QUESTIONS_AT_ONCE }, () => ask('{"of":'))
    const more = ask('{}')
    await eventually(() => expect(more.heard).toEqual(['closed']))
    begun[0]?.stream.write(Buffer.from('1}'))
    await eventually(() => expect(begun[0]?.heard[0]).toBe('{"heard":{"of":1}}'))
    const later = ask('{}')
    await eventually(() => expect(later.heard[0]).toBe('{"heard":{}}'))
  })

  it('wait for their answers so many at once, and no more', async () => {
    const { ask, hanging } = await openAsking()
    const waiting = Array.from({ length: QUESTIONS_AT_ONCE }, () => ask('{"hangs":1}'))
    const more = ask('{}')
    await eventually(() => expect(more.heard).toEqual(['closed']))
    hanging.resolve({ heard: 'late' })
    await eventually(() => expect(waiting.every(({ heard }) => heard.length > 0)).toBe(true))
    const later = ask('{}')
    await eventually(() => expect(later.heard[0]).toBe('{"heard":{}}'))
  })

  it('have answers that wait for their reader for 2 s, and no more than 32 MB of them', async () => {
    const { ask, captured, clock } = await openAsking()
    const long = () => ask('{"chars":4000000}')
    const part = (heard: string[]) => heard.join('').length
    // They are read as far as a window goes.
    const unread = Array.from({ length: 9 }, long)
    await eventually(() => expect(part(unread[8]?.heard ?? [])).toBeGreaterThan(200_000))
    const more = long()
    await eventually(() => expect(more.heard).toEqual(['closed']))
    expect(captured.text()).toContain('the node does not read answers')
    await clock.advance(1_999)
    expect(unread.map(({ heard }) => heard.at(-1))).not.toContain('closed')
    await clock.advance(1)
    await eventually(() =>
      expect(unread.every(({ heard }) => heard.at(-1) === 'closed')).toBe(true),
    )
    const later = ask('{}')
    await eventually(() => expect(later.heard[0]).toBe('{"heard":{}}'))
  })

  it('are refused above 64 KB', async () => {
    const { ask, captured } = await openAsking()
    const long = (bytes: number) => ask(`{"of":"${'x'.repeat(bytes - '{"of":""}'.length)}"}`)
    const [fits, not] = [long(65_536), long(65_537)]
    await eventually(() => expect(not.heard).toEqual(['closed']))
    await eventually(() => expect(fits.heard.join('')).toHaveLength(65_536 + '{"heard":}'.length))
    expect(captured.text()).toContain('message-too-large')
  })
})
