import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { DeviceList } from '../../../src/cli/provision/device-list.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const path = () => join(temporaryFolder(), 'devices/fleet-devices.jsonl')
const device = (name: string, token: string, ...tags: string[]) => ({
  name,
  agentDomain: `${name}.site.test`,
  tags,
  apiToken: new Secret(token),
})
const shown = (list: DeviceList) =>
  list.all.map(({ name, tags, apiToken }) => [name, apiToken.reveal(), ...tags].join(' '))

describe('the list of devices', async () => {
  it('keeps what was put, the last of a name, for this user alone', async () => {
    const file = path()
    const list = DeviceList.read(file)
    await list.put(device('cam01', 'one', 'berlin'))
    await list.put(device('cam02', 'two'))
    await list.put(device('cam01', 'three', 'bonn'))
    expect(shown(list)).toEqual(['cam02 two', 'cam01 three bonn'])
    expect(shown(DeviceList.read(file))).toEqual(shown(list))
    expect(statSync(file).mode & 0o777).toBe(0o600)
  })

  it('closes a file that others may read, and has no device that was retired', async () => {
    const file = path()
    const list = DeviceList.read(file)
    await list.put(device('cam01', 'one'))
    chmodSync(file, 0o644)
    await list.retire('cam01')
    await list.retire('cam09')
    expect([DeviceList.read(file).all, statSync(file).mode & 0o777]).toEqual([[], 0o600])
    expect(readFileSync(file, 'utf8').split('\n')).toHaveLength(3)
  })

  it('has no token any more that is of no use, and leaves every other line where it is', async () => {
    const file = path()
    const list = DeviceList.read(file)
    await list.put(device('cam01', 'first'))
    await list.put(device('cam02', 'of-another'))
    await list.addPending({ ...device('cam01', 'second'), before: ['cr_1'], isRotated: true })
    expect(readFileSync(file, 'utf8')).toContain('first')
    const before = readFileSync(file, 'utf8').split('\n')
    await list.put(device('cam01', 'second', 'berlin'))
    const after = readFileSync(file, 'utf8').split('\n')
    expect(after[0]).toBe(' '.repeat(before[0]?.length ?? 0))
    expect(after.slice(1, 3)).toEqual(before.slice(1, 3))
    expect(shown(DeviceList.read(file))).toEqual(['cam02 of-another', 'cam01 second berlin'])
    await list.retire('cam01')
    expect(readFileSync(file, 'utf8')).not.toContain('second')
    expect(shown(DeviceList.read(file))).toEqual(['cam02 of-another'])
  })

  it('reads over what a power cut has left of a line that was being overwritten', async () => {
    const file = path()
    await DeviceList.read(file).put(device('cam01', 'one'))
    appendFileSync(file, '      "api_token":"two"}\n{"name":"cam02","agent_do        \n')
    expect(shown(DeviceList.read(file))).toEqual(['cam01 one'])
  })

  it('writes at once what is added at the same time', async () => {
    const file = path()
    const list = DeviceList.read(file)
    const names = Array.from({ length: 100 }, (_, n) => `cam${n}`)
    const added = names.map((name) => list.put(device(name, `token-of-${name}`)))
    expect(existsSync(file)).toBe(false)
    await Promise.race(added)
    expect(DeviceList.read(file).all.map(({ name }) => name)).toEqual(names)
    await Promise.all(added)
    expect(list.all).toEqual(DeviceList.read(file).all)
  })

  it('tells each of them when nothing can be written', async () => {
    const folder = temporaryFolder()
    const list = DeviceList.read(join(folder, 'devices'))
    mkdirSync(join(folder, 'devices'))
    const outcomes = await Promise.allSettled([
      list.put(device('cam01', 'a')),
      list.retire('cam02'),
      list.put(device('cam03', 'b')),
    ])
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'rejected'])
    expect(list.all).toEqual([])
  })

  it('takes no line that a power cut has left, and goes on in its place', async () => {
    const file = path()
    await DeviceList.read(file).put(device('cam01', 'one'))
    appendFileSync(file, '{"name":"cam02","agent_domain":"cam0')
    const list = DeviceList.read(file)
    expect(shown(list)).toEqual(['cam01 one'])
    expect(list.incomplete).toBe(
      `${file}:2: the line is incomplete, so its device is not in the list.`,
    )
    await list.put(device('cam03', 'three'))
    const after = DeviceList.read(file)
    expect([shown(after), after.incomplete]).toEqual([['cam01 one', 'cam03 three'], undefined])
  })

  it('names a line that it has not written', () => {
    const file = join(temporaryFolder(), 'list')
    writeFileSync(file, '{"name":"cam01","retired":true}\ncam02\n')
    expect(() => DeviceList.read(file)).toThrow(
      `${file}:2: invalid line, not written by device-agent provision.`,
    )
  })
})
