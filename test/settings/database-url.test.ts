import { resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { databaseUrl } from '../../src/settings/database-url.ts'
import { Problem, readValue } from '../../src/settings/forms.ts'

const read = (text: string) => readValue(databaseUrl, text)
const problem = (text: string) => {
  const value = databaseUrl.read(text)
  return value instanceof Problem ? value.message : ''
}

describe('databaseUrl', () => {
  it('reads who, where and what', () => {
    expect(read('postgres://gateway@db.lan/site')).toEqual({
      ...{ host: 'db.lan', port: 5432, database: 'site', user: 'gateway' },
      ...{ password: undefined, tls: 'verify-full', caPath: undefined },
    })
    const full = read('postgres://a%40b:p%2Fw%3A%25@[fd00::1]:6432/my%20db')
    expect(full).toMatchObject({ host: 'fd00::1', port: 6432, database: 'my db', user: 'a@b' })
    expect(full.password?.reveal()).toBe('p/w:%')
  })

  it('finds Unix sockets in all forms that libpq knows', () => {
    for (const text of [
      'postgres://gateway@/site?host=/run/postgresql',
      'postgres://gateway@localhost/site?host=/run/postgresql',
      'postgres://gateway@%2Frun%2Fpostgresql/site',
    ]) {
      expect(read(text)).toMatchObject({ host: '/run/postgresql', user: 'gateway', tls: 'off' })
    }
  })

  it.each(['localhost', '127.0.0.1', '[::1]'])('needs no TLS on %s', (host) => {
    expect(read(`postgres://u@${host}/d`).tls).toBe('off')
    expect(read(`postgres://u@${host}/d?sslmode=verify-full`).tls).toBe('verify-full')
  })

  it('checks certificates elsewhere unless it is told to speak without TLS', () => {
    expect(read('postgres://u@10.0.0.5/d').tls).toBe('verify-full')
    expect(read('postgres://u@10.0.0.5/d?sslmode=disable').tls).toBe('off')
    const { caPath } = read('postgres://u@db.lan/d?sslrootcert=ca.pem')
    expect(caPath).toBe(resolve('ca.pem'))
  })

  it.each([
    ['mysql://u@h/d', 'must be postgres://user@host/database'],
    ['postgresql://u@h/d', 'the scheme is postgres://'],
    ['postgres://h/d', 'the user is missing'],
    ['postgres://u@h', 'the database name is missing'],
    ['postgres://u@h/', 'the database name is missing'],
    ['postgres://u@h/d/e', 'the database name is missing'],
    ['postgres://u@/d', 'the host is missing'],
    ['postgres://u@a,b/d', 'must have exactly one host'],
    ['postgres://u@h:0x1/d', 'with @ : / ? # in a password'],
    ['postgres://u:pass#word@h/d', 'with @ : / ? # in a password'],
    ['postgres://u@h/d#x', 'write # in a password as %23'],
    ['postgres://u:5%@h/d', 'write a literal % as %25'],
    ['postgres://u@h/d?sslmod=disable', 'did you mean sslmode?'],
    ['postgres://u@h/d?application_name=x', 'known: host, sslmode, sslrootcert'],
    ['postgres://u@h/d?sslmode=disable&sslmode=disable', 'exactly one value for sslmode'],
    ['postgres://u@h/d?sslrootcert=', 'one value for sslrootcert'],
    ['postgres://u@h/d?sslmode=require', 'does not verify the server'],
    ['postgres://u@h/d?sslmode=verify-ca', 'does not verify the server'],
    ['postgres://u@h/d?sslmode=on', 'sslmode=verify-full or sslmode=disable'],
    ['postgres://u@/d?host=db.lan', 'the directory of a Unix socket in host='],
    ['postgres://u@/d?host=/run&sslmode=verify-full', 'Unix sockets do not use TLS'],
    ['postgres://u@localhost/d?sslrootcert=ca.pem', 'add sslmode=verify-full'],
    ['postgres://u@h/d?sslmode=disable&sslrootcert=ca.pem', 'add sslmode=verify-full'],
  ])('refuses %s', (text, message) => {
    expect(problem(text)).toContain(message)
  })

  it('repeats no password, wherever it went wrong', () => {
    const secret = 'hunter2hunter2'
    for (const text of [
      `postgres://u:${secret}@h`,
      `postgres://u:${secret}@h/d?${secret}=1`,
      `postgres://u:${secret}#@h/d`,
      `postgres://u:${secret}%@h/d`,
      `mysql://u:${secret}@h/d`,
    ]) {
      expect(problem(text)).not.toBe('')
      expect(problem(text)).not.toContain(secret)
    }
    expect(JSON.stringify(read(`postgres://u:${secret}@h/d`))).not.toContain(secret)
  })
})
