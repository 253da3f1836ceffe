import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { DROP_IN, launcherText } from '../../packaging/deb.ts'
import { ROOT } from '../../packaging/project.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const UNIT = readFileSync(join(ROOT, 'systemd/device-agent.service'), 'utf8')
const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0

describe('the launcher of the Debian package', () => {
  it('starts the agent as its unit does', () => {
    const line = UNIT.split('\n').find((text) => text.startsWith('ExecStart=')) ?? ''
    const flags = line.split(' ').filter((word) => word.startsWith('--'))
    expect(flags).toContain('--disable-proto=delete')
    const started = launcherText(UNIT).match(/= run \]; then\n\texec (.*)/)?.[1]
    expect(started).toBe(`"$program/bin/node" ${flags.join(' ')} "$program/dist/main.js" "$@"`)
  })

  it('is not made from a unit that starts something else', () => {
    expect(() => launcherText('[Service]\nExecStart=/bin/true\n')).toThrow(/does not say how/)
  })
})

describe('a purge', () => {
  it('takes what services keep and what they cache, also where systemd really has it', () => {
    expect(UNIT).toMatch(/^CacheDirectory=device-agent\nCacheDirectoryMode=0700$/m)
    const script = readFileSync(join(ROOT, 'packaging/debian/postrm'), 'utf8')
    for (const folder of ['lib', 'cache']) {
      expect(script).toContain(`rm -rf "/var/${folder}/$service" "/var/${folder}/private/$service"`)
    }
  })
})

describe('the name of the drop-in', () => {
  it('lets those of the owner have the last word', () => {
    // What systemctl edit makes; they are read in this order.
    expect(DROP_IN < 'override.conf').toBe(true)
  })
})

describe.runIf(hasSystemd)('the drop-in of the Debian package', () => {
  it('is understood with the unit, without a complaint', () => {
    const folder = temporaryFolder()
    const dropIns = join(folder, 'device-agent.service.d')
    mkdirSync(dropIns)
    const dropIn = readFileSync(join(ROOT, 'packaging/debian', DROP_IN), 'utf8')
    // What they start is not there.
    const started = (text: string) => text.replaceAll(/(?<=^Exec\w+=\+?)\/\S+/gm, '/bin/true')
    const unit = join(folder, 'device-agent.service')
    writeFileSync(unit, started(UNIT))
    writeFileSync(join(dropIns, DROP_IN), started(dropIn))
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', unit], { encoding: 'utf8' })
    expect([status, stderr]).toEqual([0, ''])
  })
})
