import { X509Certificate } from 'node:crypto'
import { describe, expect, it, onTestFinished } from 'vitest'
import { OwnIdentity } from '../../../src/gateway/cluster/own-identity.ts'
import {
  type PeerIdentity,
  readIdentity,
} from '../../../src/gateway/cluster/peers/peer-identity.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { createCluster } from '../../helpers/cluster.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const DAY_MS = 86_400_000
const endOf = ({ certPem }: PeerIdentity) => Date.parse(new X509Certificate(certPem).validTo)

describe('OwnIdentity', () => {
  it('renews its certificate months before it ends, and tries again while it cannot', async () => {
    const clock = new ManualClock()
    const cluster = await createCluster(clock)
    const identity = await cluster.identify('nd_a')
    const folder = temporaryFolder()
    const captured = captureLog()
    const renewed: PeerIdentity[] = []
    let isAway = true
    const own = new OwnIdentity({
      ...{ folder, identity, clock, log: captured.log },
      material: {
        keepAuthority: (make) =>
          isAway ? Promise.reject(new Error('away')) : cluster.material.keepAuthority(make),
      },
      onRenewed: (it) => void renewed.push(it),
    })
    onTestFinished(() => own.stop())
    own.start()
    await clock.advance(endOf(identity) - clock.now() - 121 * DAY_MS)
    expect(captured.text()).toBe('')
    await clock.advance(2 * DAY_MS)
    await eventually(() => expect(captured.text()).toContain('not renewed yet'))
    expect(own.current).toBe(identity)
    isAway = false
    await clock.advance(DAY_MS)
    await eventually(() => expect(renewed).toHaveLength(1))
    expect(endOf(own.current)).toBeGreaterThan(endOf(identity))
    expect(readIdentity(folder)).toEqual(own.current)
    expect(own.current).toEqual({ ...identity, certPem: own.current.certPem })
    await clock.advance(10 * DAY_MS)
    expect(renewed).toHaveLength(1)
  })
})
