import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { agentChecks } from '../../../src/cli/doctor/agent-checks.ts'
import { deviceChecks } from '../../../src/cli/doctor/device-checks.ts'
import { ReadOnlyError } from '../../../src/cli/local/local-agent.ts'
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

it('names the authtoken of the gateway that npm start runs', () => {
  const folder = temporaryFolder()
  const found = (settings: Record<string, string> = {}) =>
    deviceChecks(parseConfig({ AGENT_DATA_DIR: folder, ...settings }).agent, 'unknown').find(
      ({ check }) => check === 'authtoken',
    )
  expect(found()).toMatchObject({ outcome: 'bad', detail: 'no authtoken is set' })
  writeFileSync(join(folder, 'authtoken'), 'some-authtoken', { mode: 0o600 })
  expect(found()).toMatchObject({
    outcome: 'good',
    detail: expect.stringMatching(/^npm start uses /),
  })
  expect(found({ SVC_SERVER_ADDR: 'gw.test:4443' })?.outcome).toBe('bad')
})

it('says in words what is wrong with the data directory', () => {
  const folder = join(temporaryFolder(), 'none')
  const [found] = deviceChecks(parseConfig({ AGENT_DATA_DIR: folder }).agent, 'unknown')
  expect(found?.detail).toBe(`${folder}: the directory does not exist`)
})

it('does not ask to start an agent on a read-only disk, which may run', async () => {
  const [found] = await agentChecks(new ReadOnlyError('/data/local.sock'))
  expect(found?.detail).toMatch(/^The agent cannot be asked: .* goes on serving its tunnels\.$/)
  expect(found?.remedy).toMatch(/^Remount the file system for writing, /)
  expect(found?.remedy).not.toContain('Start')
})
