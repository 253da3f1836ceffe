import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { keepIdentity, readIdentity } from '../../../../src/gateway/cluster/peers/peer-identity.ts'
import { createCluster } from '../../../helpers/cluster.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

describe('the identity in a folder', () => {
  it('is none before the node has joined', () => {
    expect(readIdentity(temporaryFolder())).toBeUndefined()
  })

  it('is read as it was kept, and by its owner alone', async () => {
    const folder = temporaryFolder()
    const identity = await (await createCluster()).identify('nd_a')
    keepIdentity(folder, identity)
    expect(readIdentity(folder)).toEqual(identity)
    expect(statSync(join(folder, 'node.json')).mode & 0o777).toBe(0o600)
  })

  it('is refused when its parts do not belong together', async () => {
    const cluster = await createCluster()
    const folder = temporaryFolder()
    const [one, other] = [await cluster.identify('nd_a'), await cluster.identify('nd_b')]
    for (const odd of [
      { ...one, keyPem: other.keyPem },
      { ...one, nodeId: 'nd_b' },
      { ...one, authorityPem: (await createCluster()).authority.certPem },
    ]) {
      keepIdentity(folder, odd)
      expect(() => readIdentity(folder)).toThrow('is damaged')
    }
    writeFileSync(join(folder, 'node.json'), readFileSync(join(folder, 'node.json')).subarray(9))
    expect(() => readIdentity(folder)).toThrow('join the cluster again')
  })
})
