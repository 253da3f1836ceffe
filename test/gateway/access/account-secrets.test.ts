import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AccountSecrets } from '../../../src/gateway/access/account-secrets.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

describe('AccountSecrets', () => {
  it('are the same after a restart, and another for each account and purpose', () => {
    const path = join(temporaryFolder(), 'login.key')
    const { log } = captureLog()
    const secrets = new AccountSecrets(path, log)
    expect(statSync(path).mode & 0o777).toBe(0o600)
    const secret = secrets.secretFor('bot_1', 'a')
    expect(secret).toHaveLength(32)
    expect(new AccountSecrets(path, log).secretFor('bot_1', 'a')).toEqual(secret)
    const others = [
      secrets.secretFor('bot_2', 'a'),
      secrets.secretFor(null, 'a'),
      secrets.secretFor('bot_1', 'b'),
      secrets.secretFor('bot_1', 'x'.repeat(5_000)),
      secrets.secretFor('bot_1', `${'x'.repeat(5_000)}y`),
      new AccountSecrets(join(temporaryFolder(), 'login.key'), log).secretFor('bot_1', 'a'),
    ]
    expect(new Set([secret, ...others].map((each) => each.toString('hex'))).size).toBe(7)
  })

  it('begin anew with a file that is damaged, and say so', () => {
    const path = join(temporaryFolder(), 'login.key')
    writeFileSync(path, 'short', { mode: 0o600 })
    const captured = captureLog()
    const secret = new AccountSecrets(path, captured.log).secretFor(null, 'a')
    expect(captured.text()).toContain('visitors must sign in again')
    expect(new AccountSecrets(path, captured.log).secretFor(null, 'a')).toEqual(secret)
    expect(captured.text()).not.toContain(readFileSync(path, 'utf8').trim())
  })

  it('close the file to others', () => {
    const path = join(temporaryFolder(), 'login.key')
    const captured = captureLog()
    const secret = new AccountSecrets(path, captured.log).secretFor(null, 'a')
    chmodSync(path, 0o644)
    expect(new AccountSecrets(path, captured.log).secretFor(null, 'a')).toEqual(secret)
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(captured.text()).toContain('readable by other users')
  })

  it('serve as long as the process where nothing can be kept', () => {
    const path = join(temporaryFolder(), 'missing', 'login.key')
    const captured = captureLog()
    const secrets = new AccountSecrets(path, captured.log)
    expect(secrets.secretFor(null, 'a')).toEqual(secrets.secretFor(null, 'a'))
    expect(existsSync(path)).toBe(false)
    expect(captured.text()).toContain('logins end when this process ends')
  })
})
