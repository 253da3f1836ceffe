import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { bringFleet, retireFromFleet } from '../../../src/cli/fleet/fleet-commands.ts'
import { DeviceList } from '../../../src/cli/provision/device-list.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** A fleet of these devices, each with a tag, and whatever a command says. */
async function startFleet(names: readonly string[], yaml = 'sets: {}') {
  const folder = temporaryFolder()
  const path = join(folder, 'fleet.yaml')
  writeFileSync(path, `version: 1\nconnect: { address: 127.0.0.1:1 }\n${yaml}\n`)
  const listPath = join(folder, 'fleet-devices.jsonl')
  for (const name of names) {
    await DeviceList.read(listPath).put({
      name,
      agentDomain: `${name}.site.test`,
      tags: ['camera'],
      apiToken: new Secret(`token-of-${name}`),
    })
  }
  const output = new PassThrough()
  const stopping = new AbortController()
  const context = { environment: {}, stdout: output, stderr: output, stop: stopping.signal }
  const said = () => String(output.read() ?? '')
  return {
    path,
    context,
    said,
    stopping,
    listed: () => DeviceList.read(listPath).all.map((it) => it.name),
  }
}

describe('a fleet', () => {
  it('says which tag no device has, rather than that all is well', async () => {
    const { path, context } = await startFleet(['cam1'])
    const apply = (tag: string[], device?: string[]) =>
      bringFleet(context, path, { tag, parallel: 1, isApply: true, ...(device && { device }) })
    await expect(apply(['kamera'])).rejects.toThrow(/contains no device with the tag kamera\.$/)
    await expect(apply(['camera', 'x'], ['cam1'])).rejects.toThrow(
      /none of these .* tag camera x\.$/,
    )
    await expect(apply([], ['cam2'])).rejects.toThrow(/contains no device named cam2\.$/)
  })

  it('goes on, with a word, where variables are for a device that is off the list', async () => {
    const { path, context, said } = await startFleet(
      ['cam1'],
      'sets: {}\ndevice_vars: { cam9: {} }',
    )
    await bringFleet(context, path, { parallel: 1, isApply: true })
    expect(said()).toMatch(/^warning: \/device_vars\/cam9: .* contains no device named cam9\.\n/)
    expect(process.exitCode).toBe(0)
  })

  it('shows what became of each device when it is stopped', async () => {
    const { path, context, said, stopping } = await startFleet(['cam1', 'cam2'])
    stopping.abort()
    await bringFleet(context, path, { parallel: 1, isApply: true })
    expect(said()).toMatch(/^cam1 {2}stopped\ncam2 {2}stopped\n.*2 stopped\.\nStopped before/)
    expect(process.exitCode).toBe(1)
    process.exitCode = 0
  })

  it('retires the rest when some are off the list already', async () => {
    const { path, context, said, listed } = await startFleet(['cam1', 'cam2'])
    const retire = (names: string[], isForced: boolean) =>
      retireFromFleet(context, path, names, { parallel: 1, isForced })
    await retire(['cam0', 'cam1'], false)
    expect(said()).toMatch(
      /^warning: .* contains no device named cam0\.\ncam1 {2}offline: \S+:\d+: connection refused \(ECONNREFUSED\)/,
    )
    expect([listed(), process.exitCode]).toEqual([['cam1', 'cam2'], 1])
    await retire(['cam0', 'cam1'], true)
    expect([listed(), process.exitCode]).toEqual([['cam2'], 0])
    await expect(retire(['cam0', 'cam1'], false)).rejects.toThrow(/no device named cam0\.$/)
  })

  it('says for how many it waits, and how long', async () => {
    const { path, context, said } = await startFleet(['cam1'], 'sets: { all: { tunnels: [] } }')
    await bringFleet(context, path, { parallel: 1, isApply: true, wait: 50 })
    expect(said()).toMatch(/^1 device is offline: waiting up to 0 s for it\ncam1 {2}offline/)
    expect(process.exitCode).toBe(3)
    process.exitCode = 0
  })
})
