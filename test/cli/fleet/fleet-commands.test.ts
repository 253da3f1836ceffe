import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { bringFleet, retireFromFleet, showFleet } from '../../../src/cli/fleet/fleet-commands.ts'
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
  const environment = { GATEWAY_DATA_DIR: join(folder, 'gateway') }
  const context = {
    environment,
    root: folder,
    stdout: output,
    stderr: output,
    stop: stopping.signal,
  }
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
    await expect(apply(['kamera'])).rejects.toThrow(
      /^No device has the tag kamera\. Did you mean camera\?$/,
    )
    await expect(apply(['x'])).rejects.toThrow(/^No device has the tag x\. Known tags: camera\.$/)
    await expect(apply([], ['cam2'])).rejects.toThrow(/contains no device named cam2\.$/)
  })

  it('names a line of the list that has been cut, and retires still', async () => {
    const { path, context, said, listed } = await startFleet(['cam1', 'cam2'])
    const listPath = join(dirname(path), 'fleet-devices.jsonl')
    const whole = readFileSync(listPath, 'utf8')
    const plan = () => bringFleet(context, path, { parallel: 1, isApply: false })
    // Also where the first line is cut, or only the line break is missing.
    for (const [end, line] of [
      [-40, 2],
      [-1, 2],
      [10 - whole.length, 1],
    ] as const) {
      writeFileSync(listPath, whole.slice(0, end))
      await expect(plan()).rejects.toThrow(
        `${listPath}:${line}: the line is incomplete, so its device is not in the list. Use a complete copy of`,
      )
    }
    writeFileSync(listPath, whole.slice(0, -40))
    const options = { parallel: 1, isForced: true }
    await retireFromFleet(context, path, ['cam1'], options)
    expect(said()).toContain(`warning: ${listPath}:2: the line is incomplete`)
    expect(listed()).toEqual([])
  })

  it('changes nothing when the file matches nothing, and retires still', async () => {
    const yaml = 'sets: { all: { tags: [kamera], tunnels: [] } }'
    const { path, context, listed } = await startFleet(['cam1', 'cam2'], yaml)
    const apply = bringFleet(context, path, { parallel: 1, isApply: true })
    await expect(apply).rejects.toThrow(/fleet\.yaml:3:23: No device has the tag kamera\./)
    await retireFromFleet(context, path, ['cam1'], { parallel: 1, isForced: true })
    expect(listed()).toEqual(['cam2'])
  })

  it('checks policies before it asks a device, and leaves doubts to the devices', async () => {
    const bad =
      'on_http_request: [{ actions: [{ type: basic-auth, config: { credentials: [a:b] } }] }]'
    const yaml = `policies: { bad: { ${bad} } }\nsets: { all: { tunnels: [] } }`
    const { path, context, said } = await startFleet(['cam1'], yaml)
    const plan = () => bringFleet(context, path, { parallel: 1, isApply: false })
    await expect(plan()).rejects.toThrow(
      /^1 mistake in .*fleet\.yaml:\n.*fleet\.yaml:3:\d+: A password must have 8 to 128 characters\. \(ERR_NGROK_360\)$/,
    )
    expect(said()).toBe('')
    writeFileSync(path, readFileSync(path, 'utf8').replace(/basic-auth.*\]/, 'denny } ] } ]'))
    await plan()
    expect(said()).toMatch(
      /^warning: .*fleet\.yaml:3:\d+: Unknown action denny: did you mean deny\? \(ERR_NGROK_2201\)\n/,
    )
    process.exitCode = 0
  })

  it('names the devices in no set with the reason, and ends with 4', async () => {
    const { path, context, said } = await startFleet(['cam1', 'cam2'])
    await bringFleet(context, path, { parallel: 1, isApply: false })
    expect(said()).toBe(
      `2 devices  in no set: cam1, cam2
  The file has no sets.
Plan: 0 to add, 0 to change, 0 to remove on 0 of 2 devices.
Devices: 2 in no set.
`,
    )
    expect(process.exitCode).toBe(4)
    process.exitCode = 0
  })

  it('gives programs one document', async () => {
    const yaml = 'sets: { all: { tunnels: [] } }'
    const { path, context, said } = await startFleet(['cam1'], yaml)
    await showFleet(context, path, { parallel: 1, json: true })
    const states = { unmanaged: 0, same: 0, differs: 0, applied: 0, pending: 0 }
    expect(JSON.parse(said())).toEqual({
      exit_code: 3,
      summary: {
        ...{ devices: 1, add: 0, change: 0, remove: 0, changed_devices: 0 },
        states: { ...states, offline: 1, failed: 0, stopped: 0 },
      },
      devices: [
        {
          ...{ name: 'cam1', tags: ['camera'], state: 'offline' },
          problem:
            '127.0.0.1:1: connection refused (ECONNREFUSED). Check connect.address in the fleet file.',
          ...{ verdict: null, last_seen_at: null, offline_reason: null, tunnels: [] },
        },
      ],
    })
    process.exitCode = 0
  })

  it('shows what became of each device when it is stopped', async () => {
    const { path, context, said, stopping } = await startFleet(['cam1', 'cam2'])
    stopping.abort()
    await bringFleet(context, path, { parallel: 1, isApply: true })
    expect(said()).toMatch(/^2 devices {2}stopped: cam1, cam2\n.*\n.*2 stopped\.\nStopped before/)
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
    const forced = said()
    expect(forced).toMatch(/cam1 {2}offline: .*\n {2}removed from the list\n/)
    const folder = dirname(path)
    expect(forced).toMatch(
      new RegExp(
        `\\n  device-agent provision --retire --name cam0 --output ${folder}\\n  device-agent provision --retire --name cam1 --output ${folder}\\n$`,
      ),
    )
    await expect(retire(['cam0', 'cam1'], false)).rejects.toThrow(/no device named cam0\.$/)
  })

  it('names the command for a device that does not answer', async () => {
    const { path, context, said } = await startFleet(['cam1'])
    await retireFromFleet(context, path, ['cam1'], { parallel: 1, isForced: false })
    expect(said()).toContain(`run:\n  device-agent fleet retire ${path} cam1 --force\n`)
    const folder = dirname(path)
    const renamed = join(folder, "tom's fleet.yaml")
    renameSync(path, renamed)
    await retireFromFleet(context, renamed, ['cam1'], { parallel: 1, isForced: false })
    // A shell reads the same path.
    expect(said()).toContain(`fleet retire '${folder}/tom'\\''s fleet.yaml' cam1 --force\n`)
    process.exitCode = 0
  })

  it('says for how many it waits, and how long', async () => {
    const { path, context, said } = await startFleet(['cam1'], 'sets: { all: { tunnels: [] } }')
    await bringFleet(context, path, { parallel: 1, isApply: true, wait: 50 })
    expect(said()).toMatch(/^1 device is offline: waiting up to 0 s for it\ncam1 {2}offline/)
    expect(process.exitCode).toBe(3)
    process.exitCode = 0
  })
})
