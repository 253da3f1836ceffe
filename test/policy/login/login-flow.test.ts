import { describe, expect, it } from 'vitest'
import {
  beginFlow,
  browserNonce,
  isOfBrowser,
  openFlow,
  proofOf,
  Sealer,
  sealFlow,
} from '../../../src/policy/login/login-flow.ts'

const sealer = new Sealer(Buffer.alloc(32, 1))

describe('a sign-in that is under way', () => {
  it('comes back as it went, to the browser that began it', () => {
    const nonce = browserNonce(undefined)
    const flow = beginFlow(nonce, '/deep?x=1', 5_000)
    expect(openFlow(sealFlow(flow, sealer), sealer)).toEqual(flow)
    expect(flow).toMatchObject({ returnTo: '/deep?x=1', startedAt: 5_000 })
    expect(isOfBrowser(flow, nonce)).toBe(true)
    expect(isOfBrowser(flow, browserNonce(undefined))).toBe(false)
    expect(isOfBrowser(flow, '')).toBe(false)
    expect(isOfBrowser(flow, undefined)).toBe(false)
  })

  it('proves itself by what only cookie, state and key give together', () => {
    const nonce = browserNonce(undefined)
    const flow = beginFlow(nonce, '/', 0)
    const proof = proofOf(flow, nonce, sealer)
    expect(proofOf(flow, nonce, sealer)).toEqual(proof)
    expect(proof.nonce).not.toBe(proof.verifier)
    const others = [
      proofOf(beginFlow(nonce, '/', 0), nonce, sealer),
      proofOf(flow, browserNonce(undefined), sealer),
      proofOf(flow, nonce, new Sealer(Buffer.alloc(32, 2))),
    ]
    for (const other of others) expect(other.verifier).not.toBe(proof.verifier)
    // RFC 7636 4.1.
    expect(proof.verifier).toMatch(/^[\w.~-]{43,128}$/)
  })

  it('shares its cookie between tabs, and takes none that is not like ours', () => {
    const nonce = browserNonce(undefined)
    expect(browserNonce(nonce)).toBe(nonce)
    for (const odd of ['', 'x', `${nonce}x`, `${nonce.slice(1)};`]) {
      expect(browserNonce(odd)).not.toBe(odd)
    }
  })

  it('forgets a path that is too long for the address of a provider', () => {
    expect(beginFlow('n', `/${'x'.repeat(2_000)}`, 0).returnTo).toBe('/')
  })

  it('is nothing without its seal', () => {
    const sealed = sealFlow(beginFlow('n', '/', 0), sealer)
    expect(openFlow(sealed, new Sealer(Buffer.alloc(32, 2)))).toBeUndefined()
    expect(openFlow(sealer.seal('{"returnTo": "/"}', 'state'), sealer)).toBeUndefined()
    expect(openFlow('', sealer)).toBeUndefined()
  })
})
