import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import { PeerRpc } from '../../../src/gateway/cluster/peer-rpc.ts'
import { NoAnswerError } from '../../../src/gateway/ports/other-gateways.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { createCluster, openLinks, startListener } from '../../helpers/cluster.ts'
import { eventually } from '../../helpers/eventually.ts'

/** A node that answers, without the way there. */
function openHome() {
  const { log } = captureLog()
  const links = { find: () => undefined }
  const home = new PeerRpc({ links, clock: systemClock, log })
  /** How many of so many are answered. */
  const askAll = async (ask: string, count: number) => {
    const asked = Array.from({ length: count }, (_, n) => home.answer({ ask, of: n }))
    const outcomes = await Promise.allSettled(asked)
    return outcomes.filter(({ status }) => status === 'fulfilled').length
  }
  return { home, askAll, log }
}

/** And another node with a link to it. */
async function openPair() {
  const { home, log } = openHome()
  const cluster = await createCluster()
  const onQuestion = (message: unknown) => home.answer(message)
  const { address } = await startListener(cluster, 'nd_home', { onQuestion })
  const { links } = openLinks(await cluster.identify('nd_asks'))
  links.follow([{ id: 'nd_home', address }])
  await eventually(() => expect(links.find('nd_home')?.state.name).toBe('up'))
  const asking = new PeerRpc({ links, clock: systemClock, log })
  return { home, asking }
}

describe('PeerRpc', () => {
  it('are all answered when a thousand of one node come together', async () => {
    const { home, asking } = await openPair()
    home.on('count', async (of) => ({ counted: of }))
    const numbers = Array.from({ length: 1_000 }, (_, n) => n)
    const asked = numbers.map((n) => asking.ask('nd_home', 'count', { n }))
    expect(await Promise.all(asked)).toEqual(numbers.map((n) => ({ counted: { n } })))
  })

  it('of one kind do not wait for those of another, 64 of each at a time', async () => {
    const { home, askAll } = openHome()
    const hanging = createDeferred<void>()
    let running = 0
    home.on('hang', async () => {
      running += 1
      await hanging.promise
    })
    home.on('count', (of) => of)
    const hung = askAll('hang', 1_000)
    await eventually(() => expect(running).toBe(64))
    expect(await askAll('count', 1_000)).toBe(1_000)
    expect(running).toBe(64)
    hanging.resolve()
    expect(await hung).toBe(1_000)
    expect(running).toBe(1_000)
  })

  it('are refused while 2,048 have no answer yet, and no longer', async () => {
    const { home, askAll } = openHome()
    const hanging = createDeferred<void>()
    home.on('hang', () => hanging.promise)
    home.on('count', (of) => of)
    const hung = askAll('hang', 2_048)
    const count = () => home.answer({ ask: 'count', of: 1 })
    await expect(count()).rejects.toThrow('too many questions from other nodes')
    hanging.resolve()
    expect(await hung).toBe(2_048)
    expect(await count()).toEqual({ answer: 1 })
  })

  it('take an answer of up to 8 MB', async () => {
    const { home, asking } = await openPair()
    home.on('long', (of) => 'x'.repeat((of as { chars: number }).chars))
    const chars = 8_388_608 - '{"answer":""}'.length
    const answer = (await asking.ask('nd_home', 'long', { chars })) as string
    expect(answer.length).toBe(chars)
    const more = asking.ask('nd_home', 'long', { chars: chars + 1 })
    await expect(more).rejects.toThrow(NoAnswerError)
  })
})
