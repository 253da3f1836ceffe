import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { bringFleet } from '../../../src/cli/fleet/fleet-commands.ts'
import { DeviceList } from '../../../src/cli/provision/device-list.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

it('says which tag no device has, rather than that all is well', async () => {
  const folder = temporaryFolder()
  const path = join(folder, 'fleet.yaml')
  writeFileSync(path, 'version: 1\nsets: {}\n')
  DeviceList.read(join(folder, 'fleet-devices.jsonl')).put({
    name: 'cam1',
    agentDomain: 'cam1.site.test',
    tags: ['camera'],
    apiToken: new Secret('token-of-cam1'),
  })
  const output = new PassThrough()
  const context = {
    environment: {},
    stdout: output,
    stderr: output,
    stop: new AbortController().signal,
  }
  const apply = (tag: string[], device?: string[]) =>
    bringFleet(context, path, { tag, parallel: 1, isApply: true, ...(device && { device }) })
  await expect(apply(['kamera'])).rejects.toThrow(/lists no device with the tag kamera\.$/)
  await expect(apply(['camera', 'x'], ['cam1'])).rejects.toThrow(/none of these .* tag camera x\.$/)
})
