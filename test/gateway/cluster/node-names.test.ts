import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../../src/base/deferred.ts'
import type { WantedName } from '../../../src/gateway/access/name-claims.ts'
import { NodeNames, type NodeNamesOptions } from '../../../src/gateway/cluster/node-names.ts'
import { type Claim, claimKey } from '../../../src/gateway/cluster/nodes/claim.ts'

const HOST = 'few.example'
const wanted = {
  ...{ protocol: 'https', host: HOST, url: `https://${HOST}`, ownerId: null, member: '' },
  ...{ endsTls: false, isShared: false, policy: { states: new Map() }, session: undefined },
} as unknown as WantedName
const key = claimKey({ protocol: 'https', host: HOST }, null)

/** A name that another node had, and whose counts are on their way. */
function open() {
  const counts = createDeferred<void>()
  let held: Claim | undefined
  const names = new NodeNames({
    claims: {
      claim: async (claim: Claim) => {
        held = claim
        return 'nd_2'
      },
      release: async () => {},
      heldBy: () => held,
    },
    registry: { holdersOf: () => [{ poolMember: '' }], disconnectedAt: () => undefined },
    ids: { next: () => 'ep_1' },
    limits: { importStates: () => counts.promise },
    lastHome: () => undefined,
    isForeign: () => false,
    mayOpen: () => true,
    isDraining: () => false,
    onOpened: () => {},
  } as unknown as NodeNamesOptions)
  let isOpened = false
  const opening = names.open(wanted, () => {
    isOpened = true
  })
  const lose = () => {
    held = undefined
  }
  return { names, opening, counts, lose, isOpened: () => isOpened }
}

describe('a name that comes from another node', () => {
  it('is awaited, and not online, until its counts are here', async () => {
    const { names, opening, counts, isOpened } = open()
    await new Promise(setImmediate)
    expect([names.isAwaited(key), isOpened()]).toEqual([true, false])
    counts.resolve()
    await opening
    expect([names.isAwaited(key), isOpened()]).toEqual([false, true])
  })

  it('does not come online when it went on to a third node meanwhile', async () => {
    const { names, opening, counts, lose, isOpened } = open()
    await new Promise(setImmediate)
    lose()
    counts.resolve()
    await expect(opening).rejects.toMatchObject({ code: 803 })
    expect([names.isAwaited(key), isOpened()]).toEqual([false, false])
  })
})
