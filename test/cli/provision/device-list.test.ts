import { appendFileSync, chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs'
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

describe('the list of devices', () => {
  it('keeps what was put, the last of a name, for this user alone', () => {
    const file = path()
    const list = DeviceList.read(file)
    list.put(device('cam01', 'one', 'berlin'))
    list.put(device('cam02', 'two'))
    list.put(device('cam01', 'three', 'bonn'))
    expect(shown(list)).toEqual(['cam01 three bonn', 'cam02 two'])
    expect(shown(DeviceList.read(file))).toEqual(shown(list))
    expect(statSync(file).mode & 0o777).toBe(0o600)
  })

  it('closes a file that others may read, and has no device that was retired', () => {
    const file = path()
    const list = DeviceList.read(file)
    list.put(device('cam01', 'one'))
    chmodSync(file, 0o644)
    list.retire('cam01')
    list.retire('cam09')
    expect([DeviceList.read(file).all, statSync(file).mode & 0o777]).toEqual([[], 0o600])
    expect(readFileSync(file, 'utf8').split('\n')).toHaveLength(3)
  })

  it('takes no line that a power cut has left, and goes on in its place', () => {
    const file = path()
    DeviceList.read(file).put(device('cam01', 'one'))
    appendFileSync(file, '{"name":"cam02","agent_domain":"cam0')
    const list = DeviceList.read(file)
    expect(shown(list)).toEqual(['cam01 one'])
    list.put(device('cam03', 'three'))
    expect(shown(DeviceList.read(file))).toEqual(['cam01 one', 'cam03 three'])
  })

  it('names a line that it has not written', () => {
    const file = join(temporaryFolder(), 'list')
    writeFileSync(file, '{"name":"cam01","retired":true}\ncam02\n')
    expect(() => DeviceList.read(file)).toThrow(`${file}:2: this is no line that provision writes.`)
  })
})
