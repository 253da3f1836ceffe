import { describe, expect, it } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { CertificateAuthority } from '../../src/gateway/certificates/certificate-authority.ts'
import { makeJoinString, parseJoinString, pinOf } from '../../src/join/join-string.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const PIN = 'ab'.repeat(32)
const ADDRESSES = [
  { host: 'gateway.example.com', port: 4443 },
  { host: '192.168.1.10', port: 4443 },
  { host: '2001:db8::1', port: 443 },
]
const made = makeJoinString({ pin: PIN, addresses: ADDRESSES })
const text = made.text.reveal()
const problemOf = (given: string) => {
  const parsed = parseJoinString(given)
  return 'problem' in parsed ? parsed.problem : 'none'
}

describe('a join string', () => {
  it('carries id, secret, pin and addresses, and needs no quotes in a shell', () => {
    const parsed = parseJoinString(text)
    if ('problem' in parsed) throw new Error(parsed.problem)
    expect(parsed).toMatchObject({ id: made.id, pin: PIN, addresses: ADDRESSES })
    expect(parsed.secret.reveal()).toBe(made.secret.reveal())
    const one = makeJoinString({ pin: PIN, addresses: ADDRESSES.slice(0, 1) }).text.reveal()
    expect(one).toMatch(/^dajoin1_[\w-]{80}@gateway\.example\.com:4443$/)
    // No secret is shown by accident.
    expect(JSON.stringify(made)).not.toContain(made.secret.reveal())
  })

  it.each([
    ['broken over two lines', `${text.slice(0, 50)}\r\n   ${text.slice(50)}\n`],
    ['with quotes', `"${text}"`],
    ['with invisible characters', `\ufeff${text.slice(0, 9)}\u200b${text.slice(9)}`],
  ])('is read %s', (_, given) => {
    expect(parseJoinString(given)).toMatchObject({ id: made.id, addresses: ADDRESSES })
  })

  it('is refused with the reason', () => {
    expect(problemOf('')).toMatch(/^This is not a join string\./)
    expect(problemOf('ngrok-token-1234')).toMatch(/^This is not a join string\./)
    expect(problemOf(text.slice(0, 60))).toMatch(/incomplete/)
    expect(problemOf(text.slice(0, text.indexOf('@')))).toMatch(/incomplete/)
    expect(problemOf(text.replace('dajoin1_', 'dajoin2_'))).toMatch(/newer gateway/)
  })

  it('shows each changed character, also in the addresses', () => {
    for (let at = 'dajoin1_'.length; at < text.length; at += 1) {
      const other = text[at] === 'x' ? 'y' : 'x'
      const changed = `${text.slice(0, at)}${other}${text.slice(at + 1)}`
      expect(problemOf(changed), changed).toMatch(/changed or cut|incomplete/)
    }
    expect(problemOf(text.slice(0, -1))).toMatch(/changed or cut/)
    expect(problemOf(`${text},evil.example:4443`)).toMatch(/changed or cut/)
  })

  it('has a pin that a renewed CA certificate keeps', async () => {
    const folder = temporaryFolder()
    const { log } = captureLog()
    const authority = await CertificateAuthority.open({ folder, clock: systemClock, log })
    const before = authority.certPem
    const clock = new ManualClock(Date.now() + 3_600 * 86_400_000)
    const renewed = await CertificateAuthority.open({ folder, clock, log })
    expect(renewed.certPem).not.toBe(before)
    expect(pinOf(renewed.certPem)).toBe(pinOf(before))
    const other = await CertificateAuthority.open({ folder: temporaryFolder(), clock, log })
    expect(pinOf(other.certPem)).not.toBe(pinOf(before))
  })
})
