import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { loadDeviceId, resetDeviceId } from '../../../src/agent/device/device-id.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const { log } = captureLog()

it('makes an id once and keeps it, readable by its owner alone', () => {
  const folder = temporaryFolder()
  const id = loadDeviceId(folder, log)
  expect(id).toMatch(/^dev_[0-9a-f]{24}$/)
  expect(loadDeviceId(folder, log)).toBe(id)
  expect(statSync(join(folder, 'device-id')).mode & 0o777).toBe(0o600)
  expect(loadDeviceId(temporaryFolder(), log)).not.toBe(id)
})

it.each(['', 'dev_', '{"half', 'x'.repeat(100_000)])('replaces the damaged id %j', (text) => {
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'device-id'), text)
  const id = loadDeviceId(folder, log)
  expect(id).toMatch(/^dev_/)
  expect(readFileSync(join(folder, 'device-id'), 'utf8').trim()).toBe(id)
})

it('makes another one when it is reset, which the next start takes', () => {
  const folder = temporaryFolder()
  const id = loadDeviceId(folder, log)
  const { before, after } = resetDeviceId(folder)
  expect(before).toBe(id)
  expect(after).not.toBe(id)
  expect(loadDeviceId(folder, log)).toBe(after)
  expect(statSync(join(folder, 'device-id')).mode & 0o777).toBe(0o600)
  writeFileSync(join(folder, 'device-id'), 'dev_')
  expect(resetDeviceId(folder).before).toBeUndefined()
})

it('works without an id of its own when the folder cannot be written', () => {
  expect(loadDeviceId('/proc/no-such-folder', log)).toMatch(/^dev_[0-9a-f]{24}$/)
})
