import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type ApiToken, openApiToken } from '../../src/api/api-token.ts'
import { API_TOKEN_MIGRATIONS, ApiTokenStore } from '../../src/api/api-token-store.ts'
import { StartError } from '../../src/base/app-error.ts'
import { Secret } from '../../src/base/secret.ts'
import { openDatabase } from '../../src/store/database.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { canMount, mountSmallDisk } from '../helpers/small-disk.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** One start of the agent, as far as its API token goes. */
function start(folder: string, given?: string) {
  const captured = captureLog()
  const clock = new ManualClock()
  const { log } = captured
  const database = openDatabase({
    path: join(folder, 'agent.db'),
    migrations: API_TOKEN_MIGRATIONS,
    applicationId: 1,
    log,
    clock,
  })
  onTestFinished(() => database.close())
  const path = join(folder, 'api-token')
  const store = new ApiTokenStore(database)
  const open = (): ApiToken =>
    openApiToken({
      given: given === undefined ? undefined : new Secret(given),
      store,
      path,
      log,
      clock,
    })
  return { open, database, path, store, text: captured.text }
}

describe('openApiToken', () => {
  it('makes a token at the first start and leaves it in a file for this user alone', () => {
    const { open, path, text } = start(temporaryFolder())
    const token = open()
    const written = readFileSync(path, 'utf8')
    expect(written).toMatch(/^dagt_[\w-]{43}\n$/)
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(token.isValid(written.trim())).toBe(true)
    expect(token.plain?.reveal()).toBe(written.trim())
    expect(text()).not.toContain(written.trim())
  })

  it('keeps only the hash in the database', () => {
    const folder = temporaryFolder()
    const { open, database, store } = start(folder)
    const plain = open().plain?.reveal() ?? ''
    expect(store.hash()).toMatch(/^[0-9a-f]{64}$/)
    database.close()
    expect(readFileSync(join(folder, 'agent.db')).includes(plain.slice(5))).toBe(false)
  })

  it('stays the same at the next start, also when the file was taken away', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const plain = first.open().plain?.reveal() ?? ''
    first.database.close()
    rmSync(first.path)
    const token = start(folder).open()
    expect(token.isValid(plain)).toBe(true)
    expect(token.plain).toBeUndefined()
  })

  it('does not believe a file that somebody changed', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    first.open()
    first.database.close()
    const forged = `dagt_${'a'.repeat(43)}`
    writeFileSync(first.path, forged)
    const token = start(folder).open()
    expect(token.isValid(forged)).toBe(false)
    expect(token.plain).toBeUndefined()
  })

  it('takes up the file when the database was lost, so that nobody is locked out', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const plain = first.open().plain?.reveal() ?? ''
    first.database.close()
    const fresh = start(temporaryFolder())
    writeFileSync(fresh.path, `${plain}\n`)
    expect(fresh.open().isValid(plain)).toBe(true)
    rmSync(fresh.path)
    expect(fresh.open().isValid(plain)).toBe(true)
  })

  it('lets the setting alone count, and forgets it with the setting', () => {
    const folder = temporaryFolder()
    const first = start(folder)
    const made = first.open().plain?.reveal() ?? ''
    first.database.close()
    const second = start(folder, 'given-token-of-the-owner')
    const given = second.open()
    expect(given.isValid('given-token-of-the-owner')).toBe(true)
    expect(given.isValid(made)).toBe(false)
    second.database.close()
    const third = start(folder).open()
    expect(third.isValid(made)).toBe(true)
    expect(third.isValid('given-token-of-the-owner')).toBe(false)
  })

  it.runIf(canMount())('stops the start when none can be kept (needs the right to mount)', () => {
    const { folder, remount } = mountSmallDisk('4m')
    start(folder).database.close()
    remount('ro')
    const { open } = start(folder)
    expect(open).toThrow(StartError)
    expect(open).toThrow('AGENT_API_TOKEN')
  })
})
