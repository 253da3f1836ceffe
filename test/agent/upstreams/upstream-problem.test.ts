import { describe, expect, it } from 'vitest'
import { DEFAULT_UPSTREAM } from '../../../src/agent/upstreams/upstream-options.ts'
import { upstreamProblem } from '../../../src/agent/upstreams/upstream-state.ts'

const SECURE = 'https://nas.lan:443'

describe('the problem of a service that visitors suffer from', () => {
  it('names the certificate, also where nobody but visitors ever asks for it', () => {
    const asked = upstreamProblem(SECURE, 'untrusted', DEFAULT_UPSTREAM)
    expect(asked).toMatchObject({ reason: 'upstream', detail: expect.stringContaining('trust') })
    expect(asked?.remedy).toContain('upstream.verify_tls')
    const unasked = upstreamProblem(SECURE, 'down', { ...DEFAULT_UPSTREAM, health: 'off' })
    expect(unasked?.detail).toMatch(/cannot be reached, or its certificate/)
    expect(upstreamProblem(SECURE, 'down', DEFAULT_UPSTREAM)?.detail).not.toContain('certificate')
    const plain = upstreamProblem('nas.lan:80', 'down', { ...DEFAULT_UPSTREAM, health: 'off' })
    expect(plain?.detail).toBe('nas.lan:80 cannot be reached')
  })

  it('names the name that has no address', () => {
    const details = { upstreamFlaw: 'unresolved' } as const
    expect(upstreamProblem('https://cam.local:9103', 'down', DEFAULT_UPSTREAM, details)).toEqual({
      reason: 'upstream',
      detail: 'the name cam.local cannot be resolved',
      remedy:
        'Correct the name, or the DNS of this device. getent hosts cam.local must show an address.',
      permanent: false,
    })
  })

  it('says with which protocol to look', () => {
    expect(upstreamProblem(SECURE, 'garbage', DEFAULT_UPSTREAM)?.remedy).toContain(
      'service with TLS',
    )
    expect(upstreamProblem('nas.lan:80', 'garbage', DEFAULT_UPSTREAM)?.remedy).toContain(
      'service without TLS',
    )
    expect(upstreamProblem(SECURE, 'up', DEFAULT_UPSTREAM)).toBeUndefined()
  })
})
