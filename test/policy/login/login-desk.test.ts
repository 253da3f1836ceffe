import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import type { IdentityProvider, SignedIn } from '../../../src/policy/login/identity-provider.ts'
import { LoginDesk } from '../../../src/policy/login/login-desk.ts'
import type { LoginSession } from '../../../src/policy/login/session.ts'

const CLIENT = { id: 'devices', secret: 's' }
const SIGNED_IN: SignedIn = { idToken: '', accessToken: 'a', refreshToken: '', profile: {} }
const SESSION: LoginSession = {
  ...SIGNED_IN,
  id: 'ids_1',
  createdAt: 0,
  seenAt: 0,
  refreshedAt: 0,
}

/** A desk whose provider answers renewals, and sign-ins when it is let. */
function openDesk() {
  const waiting: (() => void)[] = []
  const provider = { renew: async () => SIGNED_IN } as Partial<IdentityProvider>
  const desk = new LoginDesk(provider as IdentityProvider, systemClock)
  const redeem = (clientIp: string) =>
    desk.redeem(clientIp, () => new Promise<string>((resolve) => waiting.push(() => resolve('in'))))
  const answerAll = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      next()
      await new Promise(setImmediate)
    }
  }
  return { desk, redeem, answerAll }
}

const outcomeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'done',
    (error: { kind?: string; code?: string; message: string }) => error.message,
  )

describe('a log-in desk', () => {
  it('knows whom it has let in while codes that lead nowhere fill it', async () => {
    const { desk, redeem, answerAll } = openDesk()
    const junk = Array.from({ length: 300 }, (_, n) => outcomeOf(redeem(`192.0.2.${n % 100}`)))
    expect(await desk.renew(CLIENT, SESSION)).toEqual(SIGNED_IN)
    await answerAll()
    const outcomes = await Promise.all(junk)
    expect(outcomes.filter((outcome) => outcome === 'done')).toHaveLength(80)
  })

  it('leaves room for other addresses while one sends codes that lead nowhere', async () => {
    const { redeem, answerAll } = openDesk()
    const junk = Array.from({ length: 200 }, (_, n) => outcomeOf(redeem(`2001:db8::${n + 1}`)))
    const visitor = outcomeOf(redeem('2001:db8:1::1'))
    await answerAll()
    expect(await visitor).toBe('done')
    expect((await Promise.all(junk)).filter((outcome) => outcome === 'done').length).toBeLessThan(
      17,
    )
    // What is over counts no more.
    const later = outcomeOf(redeem('2001:db8::1'))
    await answerAll()
    expect(await later).toBe('done')
  })
})
