import { describe, expect, it } from 'vitest'
import { identityOf } from '../../../src/policy/login/session.ts'

const OWN = 'https://id.site.test'
const TENANT = 'https://login.microsoftonline.com/4a8c0f9e-0000-0000-0000-000000000000/v2.0'
const emailOf = (claims: object, issuer: string) =>
  identityOf({ sub: '1', email: 'ann@site.test', ...claims }, issuer).email

describe('who a visitor is', () => {
  it.each([
    ['says nothing', {}, 'ann@site.test'],
    ['calls it verified', { email_verified: true }, 'ann@site.test'],
    ['calls it unverified', { email_verified: false }, ''],
    ['calls it unverified in words', { email_verified: 'false' }, ''],
  ])('has an address where the provider %s', (_, claims, email) => {
    expect(emailOf(claims, OWN)).toBe(email)
  })

  // Whoever runs a tenant writes what he likes into the email of its users.
  it.each([
    ['says nothing', {}, ''],
    ['says neither yes nor no', { email_verified: 1, xms_edov: 1 }, ''],
    ['says that the domain is not proved', { xms_edov: false }, ''],
    ['calls it verified', { email_verified: true }, 'ann@site.test'],
    ['calls it verified in words', { email_verified: 'true' }, 'ann@site.test'],
    ['says that the domain is proved', { xms_edov: true }, 'ann@site.test'],
  ])('has an address of login.microsoftonline.com where that %s', (_, claims, email) => {
    expect(emailOf(claims, TENANT)).toBe(email)
  })

  it('is nobody else where another host only looks alike', () => {
    expect(emailOf({}, 'https://login.microsoftonline.com.site.test/v2.0')).toBe('ann@site.test')
  })

  it('is the same person at one provider, and another one at the next', () => {
    const idOf = (sub: string, issuer: string) => identityOf({ sub }, issuer).id
    expect(idOf('1', OWN)).toBe(idOf('1', OWN))
    expect(new Set([idOf('1', OWN), idOf('2', OWN), idOf('1', TENANT)]).size).toBe(3)
  })

  it('has no name, address or number where the provider sends something else for it', () => {
    const identity = identityOf({ sub: 7, email: ['a@b.test'], name: null }, OWN)
    expect(identity).toMatchObject({ email: '', name: '', provider_user_id: '' })
    expect(identityOf({ preferred_username: 'ann' }, OWN).name).toBe('ann')
  })
})
