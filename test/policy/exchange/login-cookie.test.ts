import { describe, expect, it } from 'vitest'
import {
  loginCookieName,
  setLoginCookie,
  withoutLoginCookies,
} from '../../../src/policy/exchange/login-cookie.ts'

const TAG = '0123456789ab'

describe('the cookies of a log-in', () => {
  it('are kept from scripts, and from plain HTTP where there is HTTPS', () => {
    const name = loginCookieName('session', TAG, true)
    expect(setLoginCookie(name, 'v', { maxAgeS: 60, isSecure: true })).toBe(
      `__Host-session.${TAG}=v; Path=/; Max-Age=60; HttpOnly; Secure; SameSite=Lax`,
    )
    // A browser would refuse the name, and the attribute.
    const plain = loginCookieName('nonce', TAG, false)
    expect(setLoginCookie(plain, 'v', { maxAgeS: 60, isSecure: false })).toBe(
      `nonce.${TAG}=v; Path=/; Max-Age=60; HttpOnly; SameSite=Lax`,
    )
  })

  it.each([
    [
      ['Cookie', `a=1; __Host-session.${TAG}=x; b=2`],
      ['Cookie', 'a=1; b=2'],
    ],
    [
      ['cookie', `__Host-session.${TAG}=x`, 'k', ''],
      ['k', ''],
    ],
    [
      ['cookie', `session.${TAG}=x;nonce.${TAG}=y; session.${TAG}.1=z; session=own`],
      ['cookie', 'session=own'],
    ],
    [
      ['cookie', 'a=1;b=2', 'cookie', `__Host-nonce.${TAG}=x`],
      ['cookie', 'a=1;b=2'],
    ],
    [
      ['cookie', `session.${TAG}x=1; x=session.${TAG}`, 'x-cookie', `session.${TAG}=1`],
      ['cookie', `session.${TAG}x=1; x=session.${TAG}`, 'x-cookie', `session.${TAG}=1`],
    ],
    [
      ['cookie', ''],
      ['cookie', ''],
    ],
  ])('do not go to the device: %j', (fields, kept) => {
    expect(withoutLoginCookies(fields)).toEqual(kept)
  })
})
