import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../../../src/base/secret.ts'
import {
  DATABASE_ERRORS,
  DatabaseError,
  toDatabaseError,
} from '../../../../src/gateway/cluster/postgres/database-error.ts'
import { readPassword } from '../../../../src/gateway/cluster/postgres/database-password.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

const fromServer = (code: string) =>
  Object.assign(new Error('it said so.'), { code, severity: 'FATAL' })
const fromSystem = (code: string) =>
  Object.assign(new Error(`connect ${code} /run/x/.s.PGSQL.5432`), { code })

describe('toDatabaseError', () => {
  it.each([
    ['28P01', 'database-password'],
    ['28000', 'database-refused'],
    ['3D000', 'database-missing'],
    ['42501', 'database-privilege'],
    ['25006', 'database-read-only'],
    ['25P03', 'database-slow'],
    ['57014', 'database-slow'],
    ['55P03', 'database-slow'],
    ['57P01', 'database-starting'],
    ['57P03', 'database-starting'],
    ['23505', 'database-conflict'],
    ['40001', 'database-conflict'],
    ['40P01', 'database-conflict'],
    ['53300', 'database-full'],
    ['53100', 'database-full'],
    ['08P01', 'database-pooler'],
    ['42P01', 'database-error'],
  ])('knows what the server means with %s', (state, code) => {
    const error = toDatabaseError(fromServer(state), false)
    expect(error).toMatchObject({ code, isUndone: true })
    expect(error.message).toContain(': it said so. ')
  })

  it.each(['ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', 'ENOENT'])('says %s without a path', (code) => {
    const error = toDatabaseError(fromSystem(code), false)
    expect(error.code).toBe('database-unreachable')
    expect(error.message).toContain(code)
    expect(error.message).not.toContain('/run')
  })

  it.each(['SELF_SIGNED_CERT_IN_CHAIN', 'ERR_TLS_CERT_ALTNAME_INVALID', 'CERT_HAS_EXPIRED'])(
    'takes %s for a server that does not prove who it is',
    (code) => {
      expect(toDatabaseError(fromSystem(code), false).code).toBe('database-tls')
    },
  )

  it('does not know whether a statement was done whose connection ended', () => {
    expect(toDatabaseError(fromSystem('ECONNRESET'), true).isUndone).toBe(false)
    expect(toDatabaseError(fromServer('57P01'), true).isUndone).toBe(false)
    expect(toDatabaseError(fromServer('23505'), true).isUndone).toBe(true)
    expect(toDatabaseError(new Error('Connection terminated'), true).undone().isUndone).toBe(true)
  })

  it('leaves its own errors as they are, and makes some of anything', () => {
    const error = new DatabaseError('database-slow', 'so it is')
    expect(toDatabaseError(error, true)).toBe(error)
    expect(error.undone()).toBe(error)
    expect(toDatabaseError(undefined, false).code).toBe('database-unreachable')
  })

  it('has a remedy for everything, and tells what goes away by itself', () => {
    for (const { title, remedy } of Object.values(DATABASE_ERRORS)) {
      expect(title).toMatch(/^[A-Z].*[^.]$/)
      expect(remedy).toMatch(/^\w.*[.?]$/)
    }
    expect(new DatabaseError('database-starting', 'x').isTransient).toBe(true)
    expect(new DatabaseError('database-password', 'x').isTransient).toBe(false)
  })
})

describe('readPassword', () => {
  it('takes the first line of the file, as it is now', () => {
    const passwordPath = join(temporaryFolder(), 'password')
    writeFileSync(passwordPath, 'one two\n')
    const source = { password: undefined, passwordPath }
    expect(readPassword(source).reveal()).toBe('one two')
    writeFileSync(passwordPath, 'three\r\nfour')
    expect(readPassword(source).reveal()).toBe('three')
    writeFileSync(passwordPath, '\n')
    expect(() => readPassword(source)).toThrow('the password file is empty')
  })

  it('names no path when the file cannot be read', () => {
    const passwordPath = join(temporaryFolder(), 'missing')
    expect(() => readPassword({ password: undefined, passwordPath })).toThrow('(ENOENT)')
    expect(() => readPassword({ password: undefined, passwordPath })).not.toThrow(passwordPath)
  })

  it('takes that of the URL otherwise', () => {
    const password = new Secret('of the URL')
    expect(readPassword({ password, passwordPath: undefined })).toBe(password)
    expect(() => readPassword({ password: undefined, passwordPath: undefined })).toThrow(
      'a password is required, but none is set',
    )
  })
})
