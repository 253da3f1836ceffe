import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { deviceChecks } from '../../../src/cli/doctor/device-checks.ts'
import { parseConfig } from '../../../src/config.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

it('names the setting where systemd passes no credentials to a connected agent', () => {
  const folder = temporaryFolder()
  const path = join(folder, 'credstore/svc-authtoken')
  mkdirSync(join(folder, 'credstore'))
  writeFileSync(path, 'some-authtoken', { mode: 0o600 })
  const detail = (settings: Record<string, string>, ofAgent: 'there' | 'unknown') => {
    const given = { SVC_AUTHTOKEN_FILE: path, AGENT_DATA_DIR: folder, ...settings }
    const found = deviceChecks(parseConfig(given).agent, ofAgent)
    return found.find(({ check }) => check === 'authtoken')?.detail
  }
  const value = { SVC_AUTHTOKEN: 'another-authtoken' }
  expect(detail(value, 'there')).toMatch(/^set as SVC_AUTHTOKEN/)
  // Without a running agent, the file is the next source.
  expect(detail(value, 'unknown')).toBe(`read from ${path}`)
  expect(detail({}, 'there')).toBe(`read from ${path}`)
})
