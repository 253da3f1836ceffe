import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import base from '../../packaging/image/base.json' with { type: 'json' }
import { runSettings } from '../../packaging/image/image.ts'
import { imageLauncherText } from '../../packaging/image/launcher.ts'
import { tarOf } from '../../packaging/image/layer.ts'
import { ROOT, readManifest } from '../../packaging/project.ts'

describe('the launcher of the image', () => {
  it('starts each service with the flags of its unit', () => {
    const [, text = ''] = imageLauncherText().match(/^const flags = (.*)$/m) ?? []
    const flags = JSON.parse(text)
    for (const [command, unit] of [
      ['run', 'device-agent'],
      ['gateway', 'device-gateway'],
    ] as const) {
      const started = readFileSync(join(ROOT, `systemd/${unit}.service`), 'utf8')
      expect(started).toContain(` ${flags[command].join(' ')} /usr/lib/device-agent/dist/main.js`)
      expect(flags[command]).toContain('--disable-proto=delete')
    }
  })
})

describe('the settings of the image', () => {
  it.each(['device-agent', 'device-gateway'])('have the environment of the unit of %s', (name) => {
    const unit = readFileSync(join(ROOT, `systemd/${name}.service`), 'utf8')
    // systemd replaces a percent sign by a folder that only the service has.
    const lines = [...unit.matchAll(/^Environment=([^%\n]+)$/gm)].map(([, setting]) => setting)
    expect(lines).toContain('MALLOC_ARENA_MAX=1')
    expect(runSettings(readManifest())).toMatchObject({ Env: expect.arrayContaining(lines) })
  })
})

describe('a layer of the image', () => {
  it('has the same bytes for the same entries, in whatever order they are', async () => {
    const [a, b] = [{ content: 'one' }, { link: 'a', uid: 7 }]
    const first = await tarOf({ 'etc/a': a, 'etc/b': b, data: { mode: 0o770, uid: 5 } }, 1)
    const second = await tarOf({ data: { mode: 0o770, uid: 5 }, 'etc/b': b, 'etc/a': a }, 1)
    expect(first.equals(second)).toBe(true)
  })
})

describe('the Debian packages of the image', () => {
  it('are the same for both machines, each pinned to its bytes', () => {
    const names = (packages: readonly { name: string; version: string }[]) =>
      packages.map(({ name, version }) => `${name} ${version}`)
    const { amd64, arm64 } = base.packages
    expect(names(arm64)).toEqual(names(amd64))
    for (const { sha256 } of [...amd64, ...arm64]) expect(sha256).toMatch(/^[0-9a-f]{64}$/)
  })
})
